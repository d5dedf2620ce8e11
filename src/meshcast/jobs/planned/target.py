"""A model and a plan become a program on all devices, or where the plan has stages a pipeline of programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.base import UndividedError, UnsupportedError, UsageError, kept_for_programs
from meshcast.jobs.pipeline import Pipeline
from meshcast.jobs.planned.inference import inference_program
from meshcast.jobs.planned.settings import check_devices, near_divisors, step_settings
from meshcast.jobs.planned.stages import build_pipeline
from meshcast.programs import Program, capture, keep_off_accelerators, setting_value
from meshcast.zoo import FUSED_PLATFORMS, PLAN_FLAG, Builder, Plan, hint, model_named

# What plans call the axes of a layout.
_KEYS = {"data": "dp", "fsdp": "fsdp", "expert": "ep", "context": "cp", "tensor": "tp"}


def plan_target(
    target: Any,
    plan: Plan,
    *,
    settings: Mapping[str, str] | None = None,
    devices: int | None = None,
    platform: str = "cuda",
) -> Program | Pipeline:
    """What a target's model becomes under a plan, as `planned_model` makes it.

    Args:
        target: A model of the zoo, or a Hugging Face configuration.
        plan: How it is shared out.
        settings: What `--set` says; `batch` is the global batch.
        devices: How many there are; the plan's number where it is None.
        platform: What to lower for.

    Raises:
        UsageError: The target is no model.
        InfeasibleError: The plan does not divide the model, the batch or the devices.
        UnsupportedError: The plan asks for what the model or the platform does not have.
    """
    return planned_model(model_of(target), plan, settings=settings or {}, devices=devices, platform=platform)


def planned_model(
    builder: Builder, plan: Plan, *, settings: Mapping[str, str], devices: int | None, platform: str
) -> Program | Pipeline:
    """What a model becomes under a plan; the same question has the same answer, which is kept.

    Arguments and errors are those of `plan_target`, but for a target that is no model.
    """
    plan = replace(plan, stack=None)  # it runs the program and is no part of it
    check_devices(plan, devices)
    if plan.attending.startswith("flash") and platform not in FUSED_PLATFORMS:
        raise UnsupportedError(
            f"attention={plan.attending} is a kernel of {', '.join(FUSED_PLATFORMS)}, and the program is lowered for {platform}",
            where=PLAN_FLAG,
            fix="use attention=plain, or all-gather with cp",
        )
    chosen = tuple((name, setting_value(text)) for name, text in settings.items())
    mode = dict(chosen).get("mode", builder.mode)
    make: Callable[..., Program | Pipeline] = _program if plan.one_program else _pipeline
    try:
        if mode != "train":
            return inference_program(builder, mode, plan, chosen, platform)
        return make(builder, plan, chosen, platform)
    except UndividedError as error:
        raise _in_words_of_plans(error, builder) from None


def _in_words_of_plans(error: UndividedError, builder: Builder) -> UndividedError:
    """What a model refuses of a mesh, by the plan's own keys and with the nearest degrees that would do."""
    split = {_KEYS[axis]: size for axis, size in error.split.items()}
    close = " or ".join(str(n) for n in near_divisors(error.count, math.prod(split.values())))
    use = (
        f"use {next(iter(split))}={close}"
        if len(split) == 1
        else f"use {' and '.join(split)} that make {close} together"
    )
    return UndividedError(
        f"{builder.name}, {error.what}", error.count, split, where=PLAN_FLAG, fix=f"{use}, or change the size"
    )


def model_of(target: Any) -> Builder:
    """The model that a target names.

    Raises:
        UsageError: It is a program already.
    """
    builder = model_named(target)
    if builder is None:
        raise no_model(str(target) if isinstance(target, (str, Path)) else "")
    return builder


def no_model(text: str) -> UsageError:
    """Why there is no plan for what is called `text`, or for a program that has no name."""
    meant = hint(text) if text else ""
    if meant.startswith("did"):
        fix = f"{meant} A program of one's own has its shardings already"
    elif meant and not meant.startswith("known"):  # a model that there is, in a mode that is no program of it
        fix = meant
    else:
        fix = "name a model (meshcast models); a program of one's own has its shardings already"
    return UsageError(
        f"a plan is for models of the zoo and Hugging Face configurations, not for {text or 'a program'}",
        where=PLAN_FLAG,
        fix=fix,
    )


@kept_for_programs
def _program(builder: Builder, plan: Plan, settings: tuple[tuple[str, Any], ...], platform: str) -> Program:
    """One program on all devices."""
    keep_off_accelerators()
    from meshcast.jobs.planned.programs import precisely

    fn, args, options = builder(plan.mesh, **step_settings(plan, builder, dict(settings)))
    function = precisely(fn) if plan.precision == "fp32" else fn
    program = capture(function, *args, name=builder.name, platform=platform, options=options, uneven=True)
    return replace(program, notes=builder.remarks(plan.mesh, **dict(settings)))


@kept_for_programs
def _pipeline(builder: Builder, plan: Plan, settings: tuple[tuple[str, Any], ...], platform: str) -> Pipeline:
    """A pipeline of programs."""
    keep_off_accelerators()
    return build_pipeline(builder, plan, dict(settings), platform)
