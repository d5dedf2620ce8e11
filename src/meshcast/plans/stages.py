"""A plan with stages: the model's layers shared out over parts, equal parts once, and the pipeline of their programs."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from meshcast.errors import InfeasibleError, UnsupportedError, UsageError
from meshcast.models import Builder
from meshcast.pipelined import Part, Pipeline, pipeline_of
from meshcast.plans.plan import Plan
from meshcast.plans.settings import REMAT, check, microbatches_of

_FLAG = "--plan"
# What a part of a model is made with; everything else that is set belongs to its configuration.
_KEYWORDS = ("seq", "batch")


def layers_of_parts(plan: Plan, layers: int, name: str) -> tuple[int, ...]:
    """How many layers each part of the model has, in order.

    Raises:
        InfeasibleError: They cannot be shared out evenly, or do not add up.
    """
    if plan.layers_per_stage:
        if sum(plan.layers_per_stage) != layers:
            raise InfeasibleError(
                f"layers-per-stage adds up to {sum(plan.layers_per_stage)}, and {name} has {layers} layers",
                where=_FLAG,
                fix="change one of the numbers",
            )
        return plan.layers_per_stage
    each, left = divmod(layers, plan.parts)
    if left or not each:
        uneven = "+".join(str(each + (number < left)) for number in range(plan.parts)) if each else ""
        raise InfeasibleError(
            f"the {layers} layers of {name} cannot be shared out evenly over pp={plan.pp} x vp={plan.vp} parts",
            where=_FLAG,
            fix=f"use layers-per-stage={uneven}, or another pp or vp" if uneven else "use fewer stages",
        )
    return (each,) * plan.parts


def build_pipeline(builder: Builder, plan: Plan, settings: Mapping[str, Any], platform: str) -> Pipeline:
    """The pipeline of a model under a plan.

    Raises:
        InfeasibleError: The plan does not divide the model or the batch.
        UnsupportedError: The model cannot be cut, or not so.
        UsageError: A setting is not known.
    """
    module = importlib.import_module(f"meshcast.models.{builder.module}")
    if not hasattr(module, "sections"):
        raise UnsupportedError(
            f"{builder.name} cannot be cut into stages", where=_FLAG, fix="use pp=1, or a GPT or decoder of the zoo"
        )
    if plan.pipeline_schedule.startswith("zb"):
        raise UnsupportedError(
            f"schedule={plan.schedule} splits the backward pass, which plans do not do yet",
            where=_FLAG,
            fix="use 1f1b, gpipe or interleaved, or write the pipeline as a file (docs/pipelines.md)",
        )
    if plan.zero == 2:
        raise InfeasibleError(
            "zero=2 reduces gradients of every microbatch, and a pipeline reduces them once a step",
            where=_FLAG,
            fix="use zero=1 (state shared out), or fsdp",
        )
    config = builder.configured(**settings)
    known = {*_KEYWORDS, *(name for name in builder.overrides("train") if hasattr(config, name))}
    if unknown := next((name for name in settings if name not in known), None):
        raise UsageError(
            f"{unknown} is no setting of a plan's stages", where="--set", fix="they are " + ", ".join(sorted(known))
        )
    check(plan, builder, settings)
    microbatches = microbatches_of(plan, settings)
    counts = layers_of_parts(plan, config.layers, builder.name)
    starts = list(itertools.accumulate((0, *counts[:-1])))
    parts: list[Part] = []
    kinds = [
        (config.part(start, layers), number == 0, number == len(counts) - 1)
        for number, (start, layers) in enumerate(zip(starts, counts, strict=True))
    ]
    for (_, is_first, is_last), group in itertools.groupby(kinds):
        number, same = sum(part.count for part in parts), len(list(group))
        key = _PartKey(
            builder=builder,
            config=config,
            start=starts[number],
            layers=counts[number],
            is_first=is_first,
            is_last=is_last,
            seq=settings.get("seq"),
            plan=replace(plan, pp=1, vp=1, schedule=None, microbatches=None, layers_per_stage=()),
            platform=platform,
        )
        name = _named(number, same, len(counts))
        # What the update depends on: changing the microbatch leaves it as it is.
        lasting = replace(key, plan=replace(key.plan, mbs=1, remat="none", sp=False, attention=None))
        forward, backward = _passes(key)
        parts.append(Part(name=name, forward=forward, backward=backward, update=_update(lasting), count=same))
    replicas = ["data"] if plan.mesh.get("data", 1) > 1 else []
    return pipeline_of(
        parts,
        microbatches=microbatches,
        mesh=plan.mesh,
        schedule=plan.pipeline_schedule,
        virtual_stages=plan.vp,
        reduce_over=replicas,
        reduce_kind="reduce_scatter" if plan.zero == 1 else "all_reduce",
        buckets=max(counts),
        name=f"{builder.name} ({plan})",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartKey:
    """Everything that a part's programs depend on: equal keys have equal programs, which are made once."""

    builder: Builder
    config: Any
    start: int
    layers: int
    is_first: bool
    is_last: bool
    seq: int | None
    plan: Plan
    platform: str

    def made(self) -> tuple[Any, Any, Any]:
        """What the part is made of, which one it is, and how its programs are captured."""
        from meshcast.models.sharding import Layout
        from meshcast.plans.programs import PartKind, captured_as

        plan = self.plan
        sections = importlib.import_module(f"meshcast.models.{self.builder.module}").sections(
            self.config,
            first=self.start,
            layers=self.layers,
            mesh={axis: size for axis, size in plan.mesh.items() if axis != "data"},
            remat=REMAT[plan.remat],
            sequence_parallel=plan.sp,
            attention=plan.attending,
            products="fp8" if plan.precision == "fp8" else "plain",
            **({} if self.seq is None else {"seq": self.seq}),
        )
        kind = PartKind(
            first=self.is_first,
            last=self.is_last,
            rows=plan.mbs * plan.batch_shards // plan.mesh.get("data", 1),
            dtype="float32" if plan.precision in ("fp32", "tf32") else "bfloat16",
            gradients="bfloat16" if plan.gradients == "bf16" else "float32",
            spread=Layout.of(plan.mesh, axes=tuple(plan.mesh)) if plan.zero == 1 and plan.dp * plan.ep > 1 else None,
        )
        last = self.start + self.layers - 1
        name = f"{self.builder.name}, layers {self.start} to {last}" if self.layers else f"{self.builder.name}, an end"
        return sections, kind, captured_as(name, self.platform, precise=plan.precision == "fp32")


@lru_cache(maxsize=64)
def _passes(key: _PartKey) -> tuple[Any, Any]:
    from meshcast.plans.programs import pass_programs

    return pass_programs(*key.made())


@lru_cache(maxsize=64)
def _update(key: _PartKey) -> Any:
    from meshcast.plans.programs import update_program

    return update_program(*key.made())


def _named(first: int, count: int, parts: int) -> str:
    """What a part, or some equal ones in a row, are called."""
    if first == 0:
        return "first"
    if first + count == parts:
        return "last"
    return f"part {first + 1}" if count == 1 else "middle"
