"""The bounds of one combination's plans, each level from what engines have found out about layers."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.explore.bounds import PlanBound, closed_form, of_layers
from meshcast.explore.evaluating import cluster_of, options_of
from meshcast.explore.measures import Known
from meshcast.explore.point import Point
from meshcast.explore.space import Combination
from meshcast.explore.whole_steps import of_step
from meshcast.explore.work import SearchWork
from meshcast.hardware import Cluster
from meshcast.jobs import TURNS, LayersCost, WeightTraffic
from meshcast.zoo import Plan

LEVELS = 4  # closed form, a layer in its loop, a part in the middle, the last part
_COUNTED = {"fidelity": "roofline"}  # what layers are counted with: nobody's times


@dataclass(kw_only=True)
class Bounder:
    """What is known of a combination's layers.

    Attributes:
        combination: The combination.
        known: What holds for all of its plans.
        found: Costs of layers by the works that asked for them, shared between combinations.
    """

    combination: Combination
    known: Known
    found: dict[str, LayersCost | None] = field(repr=False)
    cluster: Cluster = field(init=False, repr=False)
    _modelled: bool = field(init=False, default=True)
    _traffic: WeightTraffic = field(init=False, repr=False)

    def __post_init__(self) -> None:
        options = options_of({**self.combination.asked, "plan": None})
        self.cluster = cluster_of(options)
        self._traffic = WeightTraffic(self.cluster, options)
        # A compiler is asked about whole programs: its parts are no cheaper than the step.
        self._modelled = "compiled" not in (options.estimate.fidelity, options.lowering.kernels)

    def wanted(self, plan: Plan, level: int) -> SearchWork | None:
        """What has to be known for a plan's bound of a level; None where that level has none for it."""
        shape = self.combination.shape
        if not shape.staged or not self._modelled:
            return None
        if level == 0:
            alone = Plan(
                remat=plan.remat,
                precision=plan.precision,
                gradients=plan.gradients,
                attention=_alone(plan),
                stack=plan.stack,
            )
            return self._work(alone, 0, counted=True)
        if level == 1:
            # Parts of one turn have no loop, and layers that come first may be of another kind.
            if plan.one_program:
                looped = shape.layers - shape.first >= TURNS * shape.period
                return self._work(_family(plan), 0, last=True) if looped else None
            return self._work(_family(plan), 0) if shape.layers // plan.parts >= TURNS * shape.period else None
        # Layers that come first may be of another kind.
        each = shape.layers // plan.parts
        if level == 2:
            return self._work(_family(plan), each) if plan.parts > 2 and not shape.first else None
        return self._work(_family(plan), each, last=True) if plan.parts > 1 and not shape.first else None

    def bound(self, plan: Plan, level: int) -> PlanBound:
        """A plan's bound of a level, from what is known by then."""
        shape, batch = self.combination.shape, self.combination.batch
        base = self._found(plan, 0)
        bound = closed_form(plan, shape, batch, base, self.cluster)
        turn = self._found(plan, 1) if level >= 1 else None
        part = self._found(plan, 2) if level >= 2 else None
        last = self._found(plan, 3) if level >= 3 else None
        if turn is None and part is None and last is None:
            return bound
        device = self.cluster.device
        if plan.one_program:
            return bound.raised(of_step(plan, shape, batch, device, turn, self._traffic)) if turn is not None else bound
        return bound.raised(of_layers(plan, shape, batch, device, turn, part, last))

    def _found(self, plan: Plan, level: int) -> LayersCost | None:
        work = self.wanted(plan, level)
        return self.found.get(work_key(work)) if work is not None else None

    def _work(self, plan: Plan, layers: int, *, counted: bool = False, last: bool = False) -> SearchWork:
        settings = {name: text for name, text in self.combination.asked["settings"].items() if name != "batch"}
        asked: dict[str, Any] = {**self.combination.asked, "settings": settings, "plan": str(plan), "devices": None}
        if counted:
            asked |= _COUNTED
        shape = self.combination.shape
        ending = shape.layers - (layers or TURNS * shape.period)
        point = Point(number=-1, target=self.combination.target, asked=asked)
        return SearchWork(
            kind="layers",
            point=point,
            first=ending if last else shape.first,
            layers=layers,
            last=last,
            period=shape.period,
            family=family_of(point.target, plan, asked),
        )


def work_key(work: SearchWork) -> str:
    """What tells works about layers apart."""
    return json.dumps(work.to_json(), sort_keys=True)


def family_of(target: str, plan: Plan | None, asked: Mapping[str, Any]) -> str:
    """What points have in common that share programs."""
    return _family_text(target, plan, asked.get("settings", {}).get("seq"))


@functools.lru_cache(maxsize=4096)
def _family_text(target: str, plan: Plan | None, seq: str | None) -> str:
    return json.dumps([target, str(_family(plan)) if plan is not None else "", seq])


def _family(plan: Plan) -> Plan:
    """What the layers of a plan depend on: neither replicas, nor stages, nor who shares the optimizer out.

    Of a plan without stages it is that of the same layers whose weights are not spread: spreading them adds gathers.
    """
    if plan.one_program:
        plan = replace(plan, fsdp=1, dp=1, zero=0, offload="none")
    apart = {"pp": 2, "schedule": plan.schedule} if plan.splits_backward else {"pp": 1, "schedule": None}
    outside: dict[str, Any] = {} if plan.zero == 3 else {"dp": 1, "zero": 0}
    return replace(plan, vp=1, microbatches=None, layers_per_stage=(), offload="none", **apart, **outside)


def _alone(plan: Plan) -> Any:
    """How one device attends that has whole sequences."""
    if plan.attention in (None, "auto", "plain", "flash"):
        return plan.attention
    return "flash" if plan.attention.startswith("flash") else "plain"
