"""A plan with stages: the model's layers shared out over parts, equal parts once, and the pipeline of their programs."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
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
    from meshcast.plans.programs import PartKind, captured_as, part_programs

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
    inner = {axis: size for axis, size in plan.mesh.items() if axis != "data"}
    how = {
        "mesh": inner,
        "remat": REMAT[plan.remat],
        "sequence_parallel": plan.sp,
        "attention": plan.attending,
        **({"seq": settings["seq"]} if "seq" in settings else {}),
    }
    keys = []
    for number, first in enumerate(itertools.accumulate((0, *counts[:-1]))):
        part = config.part(first, counts[number])
        keys.append((part, number == 0, number == len(counts) - 1, first))
    parts = []
    number = 0
    for (part, is_first, is_last), group in itertools.groupby(keys, key=lambda key: key[:3]):
        same = list(group)
        sections = module.sections(config, first=same[0][3], layers=part.layers, **how)
        kind = PartKind(
            first=is_first,
            last=is_last,
            rows=plan.mbs * plan.batch_shards // (1 if plan.zero == 3 else plan.dp),
            dtype="float32" if plan.precision in ("fp32", "tf32") else "bfloat16",
            spread=sections.layout.of(plan.mesh, axes=tuple(plan.mesh)) if plan.zero == 1 and plan.dp > 1 else None,
        )
        name = _named(number, len(same), len(counts))
        capturing = captured_as(f"{builder.name}, {name}", platform, precise=plan.precision == "fp32")
        made = part_programs(sections, kind, capturing)
        parts.append(Part(name=name, forward=made.forward, backward=made.backward, update=made.update, count=len(same)))
        number += len(same)
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


def _named(first: int, count: int, parts: int) -> str:
    """What a part, or some equal ones in a row, are called."""
    if first == 0:
        return "first"
    if first + count == parts:
        return "last"
    return f"part {first + 1}" if count == 1 else "middle"
