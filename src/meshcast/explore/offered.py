"""What a plan can be changed to: for each of its keys the values that divide the model, the devices and the batch.

For whoever builds a plan step by step: what is offered can be chosen, and what is chosen is a plan that exists. The rules are
those of `PlanSpace`, without what it leaves out as unusual. `fsdp` and `dp` take what the other degrees leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from meshcast.base import InfeasibleError, MeshcastError
from meshcast.explore.plans import DEGREES, LARGEST_MBS, PlanSpace, divisors, powers
from meshcast.explore.shape import ModelShape
from meshcast.zoo import Plan

# Degrees that are chosen, and those that share what is left; the same for models that do not train, which have fewer.
CHOSEN, REST = ("pp", "tp", "cp", "ep"), ("fsdp", "dp")
TRAINING_ALONE = ("pp", "cp")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedPlans:
    """A plan, and what each of its keys can be changed to.

    Attributes:
        plan: The plan that was asked for, or the nearest one that divides.
        degrees: Values of each degree; with the others of `CHOSEN` as the plan has them.
        mbs: Sequences of a microbatch.
        vp: Parts of a stage.
        sp: Whether positions can be split with `tp`.
    """

    plan: Plan
    degrees: Mapping[str, tuple[int, ...]]
    mbs: tuple[int, ...]
    vp: tuple[int, ...]
    sp: bool


def offered_plans(shape: ModelShape, *, devices: int, batch: int, wanted: Plan, training: bool = True) -> OfferedPlans:
    """What a plan of a model on some devices can be changed to.

    Raises:
        InfeasibleError: No plan divides the model, the devices and the batch.
    """
    counts = divisors(devices)
    space = PlanSpace(shape=shape, devices=devices, batch=batch, choices={"cp": counts, "fsdp": counts})
    found = [
        degrees
        for degrees in space.degrees()
        if batch % (degrees["dp"] * degrees["fsdp"] * degrees["ep"]) == 0
        and (training or all(degrees[name] == 1 for name in TRAINING_ALONE))
    ]
    if not found:
        raise InfeasibleError(
            f"no plan shares {shape.name} out over {devices:,} devices with a batch of {batch:,}",
            where="devices",
            fix=f"a batch of {math.lcm(batch, devices):,}, or another number of devices",
        )
    best = min(found, key=lambda degrees: _distance(degrees, wanted))
    offered = {
        name: tuple(
            sorted({each[name] for each in found if all(each[key] == best[key] for key in CHOSEN if key != name)})
        )
        for name in DEGREES
    }
    shards = best["dp"] * best["fsdp"] * best["ep"]
    sizes = sorted({*powers(LARGEST_MBS), wanted.mbs}) if training else [1]
    mbs = tuple(size for size in sizes if batch % (size * shards) == 0)
    kept = wanted.mbs if wanted.mbs in mbs else 1
    cuts = space.cuts(best["pp"], batch // (kept * shards)) if training else ()
    vp = tuple(sorted({int(cut.get("vp", 1)) for cut in cuts} | {1}))
    split = best["cp"] * best["tp"]
    sp = best["tp"] > 1 and shape.seq > 0 and shape.seq % split == 0
    changed: dict[str, Any] = {**best, "mbs": kept, "vp": wanted.vp if wanted.vp in vp else 1, "sp": wanted.sp and sp}
    return OfferedPlans(plan=_plan_with(wanted, changed), degrees=offered, mbs=mbs, vp=vp, sp=sp)


def _distance(degrees: Mapping[str, int], wanted: Plan) -> tuple[Any, ...]:
    """How far degrees are from those of a plan: chosen ones one after the other, then how the rest is shared."""
    off = [abs(math.log(degrees[name] / getattr(wanted, name))) for name in CHOSEN]
    kept = [degrees[name] == getattr(wanted, name) for name in REST]
    # Where neither can be kept, stages have replicas, and everything else shards.
    return (*off, not all(kept), not any(kept), -degrees["dp" if degrees["pp"] > 1 else "fsdp"])


def _plan_with(wanted: Plan, changed: Mapping[str, Any]) -> Plan:
    """A plan with some keys changed; keys that do not go together with those any more are as usual."""
    usual = Plan()
    for dropped in ((), ("schedule", "layers_per_stage", "microbatches"), ("attention", "offload")):
        wanted = replace(wanted, **{name: getattr(usual, name) for name in dropped}) if dropped else wanted
        given = {each.name: getattr(wanted, each.name) for each in fields(Plan)} | dict(changed)
        try:
            return Plan(**given)
        except MeshcastError:
            continue
    return Plan(**changed)
