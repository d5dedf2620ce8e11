"""A plan for a model that does not train: the mesh of its forward pass, prompt or decoding step, and nothing else."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.jobs.planned.settings import check, refuse_decided
from meshcast.programs import Program, capture, keep_off_accelerators
from meshcast.zoo import AUTO, PLAN_FLAG, Builder, Plan

# What shares out a program that does not train; the rest of a plan is about gradients, stages and what is saved.
_SHARES = ("dp", "fsdp", "tp", "sp", "ep")
_ATTENTIONS = (None, AUTO, "plain", "flash")


@lru_cache(maxsize=16)
def inference_program(
    builder: Builder, mode: str, plan: Plan, settings: tuple[tuple[str, Any], ...], platform: str
) -> Program:
    """The program of a mode on all devices of a plan; `batch` is that of all devices.

    Raises:
        UnsupportedError: The plan has more than shares of weights and requests.
        InfeasibleError: They do not divide the model or the batch.
        UsageError: A setting is the plan's to decide.
    """
    default = Plan()
    for field in fields(Plan):
        if field.name == "attention" and plan.attention in _ATTENTIONS:
            continue
        if field.name not in _SHARES and getattr(plan, field.name) != getattr(default, field.name):
            raise UnsupportedError(
                f"{field.name.replace('_', '-')} is for training, and this is {builder.name} in mode {mode}",
                where=PLAN_FLAG,
                fix="share it out by " + ", ".join(_SHARES),
            )
    keep_off_accelerators()
    chosen = {name: value for name, value in settings if name != "mode"}
    known = builder.overrides(mode)
    if plan.sp and "sequence_parallel" not in known:
        raise UnsupportedError(
            f"sp=1 splits positions, and {builder.name} in mode {mode} does not", where=PLAN_FLAG, fix="leave sp out"
        )
    check(plan, builder, chosen, mode=mode)
    if plan.attention == "flash" and "attention" not in known and mode != "decode":
        raise UnsupportedError(
            f"attention=flash, and {builder.name} in mode {mode} has no fused attention",
            where=PLAN_FLAG,
            fix="use attention=plain",
        )
    shared: dict[str, Any] = {"sequence_parallel": True} if plan.sp else {}
    if plan.attention not in (None, AUTO) and "attention" in known:  # single positions attend to the cache by products
        shared["attention"] = plan.attention
    refuse_decided(plan, shared, chosen)
    fn, args, options = builder(plan.mesh, mode=mode, **chosen, **shared)
    return capture(fn, *args, name=builder.name, platform=platform, options=options, uneven=True)
