"""A plan without stages: the mesh and the settings of the model's own training step, one program on all devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshcast.errors import InfeasibleError, UnsupportedError, UsageError
from meshcast.hardware import Device
from meshcast.models import Builder
from meshcast.plans.plan import Plan

# What the models call it.
REMAT = {"none": "none", "products": "products", "selective": "dots", "alternate": "alternate", "full": "full"}
_FLAG = "--plan"
# Settings that a plan decides.
DECIDED = ("accumulate", "zero", "remat", "sequence_parallel", "attention", "products", "compute_dtype")


def step_settings(plan: Plan, builder: Builder, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model's training step under a plan.

    Args:
        plan: The plan; its stages are not looked at.
        builder: The model.
        settings: What is set besides.

    Raises:
        InfeasibleError: The model cannot be shared out so.
        UsageError: Plan and settings contradict each other.
        UnsupportedError: The model's training step has no such thing.
    """
    known = builder.overrides("train")
    for name in DECIDED:
        if name in settings:
            raise UsageError(
                f"{name} is decided by the plan {plan}", where="--set", fix="say it in the plan, or use --mesh"
            )
    check(plan, builder, settings)
    microbatches = microbatches_of(plan, settings)
    wanted: dict[str, Any] = {
        "batch": plan.mbs * plan.batch_shards * microbatches,
        "accumulate": microbatches,
        "remat": REMAT[plan.remat],
        "zero": plan.zero % 3,
        "sequence_parallel": plan.sp,
        "attention": plan.attending,
        "products": "fp8" if plan.precision == "fp8" else "plain",
        "compute_dtype": "bfloat16" if plan.precision in ("bf16", "fp8") else "float32",
    }
    neutral = {"accumulate": 1, "zero": 0, "sequence_parallel": False, "attention": "plain", "products": "plain"}
    for name in [name for name in wanted if name not in known]:
        if wanted[name] != neutral.get(name, known.get(name, wanted[name] if name == "remat" else None)):
            raise UnsupportedError(
                f"the training step of {builder.name} has no {name}, and {plan} asks for {name}={wanted[name]}",
                where=_FLAG,
                fix="leave it out of the plan, or choose a language model of the zoo",
            )
        del wanted[name]
    if wanted.get("zero") and plan.precision in ("bf16", "fp8") and "param_dtype" not in settings:
        wanted["param_dtype"] = "bfloat16"  # the fp32 copy is in the optimizer's state, shared out
    return {**settings, **wanted}


def check(plan: Plan, builder: Builder, settings: Mapping[str, Any]) -> None:
    """Refuses a plan that does not divide the model.

    Raises:
        InfeasibleError: Heads, experts or the sequence are not divided.
        UnsupportedError: Something is not modelled.
    """
    if plan.offload != "none":
        raise UnsupportedError(
            "offloading to the host's memory is not modelled", where=_FLAG, fix="leave offload out of the plan"
        )
    config = builder.configured(**settings)
    for what, count, key in (
        ("attention heads", getattr(config, "heads", None), "tp"),
        ("experts", getattr(config, "experts", None), "ep"),
        ("the sequence", _length(builder, config, settings), "cp"),
    ):
        degree = getattr(plan, key)
        if degree > 1 and not count:
            raise InfeasibleError(
                f"{key}={degree} splits {what}, and {builder.name} has none",
                where=_FLAG,
                fix=f"leave {key} out of the plan",
            )
        if count and count % degree:
            close = [n for n in range(1, count + 1) if count % n == 0 and n <= 2 * degree]
            raise InfeasibleError(
                f"{what} of {builder.name}: {count} is not divisible by {key}={degree}",
                where=_FLAG,
                fix=f"use {key}=" + " or ".join(str(n) for n in close[-2:]),
            )


def _length(builder: Builder, config: Any, settings: Mapping[str, Any]) -> int | None:
    """Positions of a sequence: as set, as the training step has it, or as many as the model has."""
    known = builder.overrides("train")
    if "seq" not in known:
        return None
    return _whole(settings, "seq") or known["seq"] or getattr(config, "positions", None)


def microbatches_of(plan: Plan, settings: Mapping[str, Any]) -> int:
    """Microbatches of a step with the global batch that is set."""
    return plan.microbatches_of(_whole(settings, "batch"))


def _whole(settings: Mapping[str, Any], name: str) -> int | None:
    value = settings.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"the setting {name} is a positive integer, not {value!r}", where="--set")
    return value


def check_device(plan: Plan, device: Device) -> None:
    """Refuses a device without what the plan's products need.

    Raises:
        UnsupportedError: It has no fp8.
    """
    if plan.precision == "fp8" and "f8" not in device.matrix_flops:
        has = ", ".join(sorted(device.matrix_flops))
        raise UnsupportedError(
            f"precision=fp8, and {device.name} multiplies matrices of {has} only", where=_FLAG, fix="use precision=bf16"
        )


def check_devices(plan: Plan, devices: int | None) -> None:
    """Refuses a number of devices that is not the plan's.

    Raises:
        InfeasibleError: They differ.
    """
    if devices in (None, plan.devices):
        return
    said = " x ".join(f"{key}={value}" for key, value in plan.degrees.items()) or "dp=1"
    gap = devices / (plan.devices // plan.dp)
    fix = f"use dp={int(gap)}" if gap == math.floor(gap) and gap >= 1 else "change the plan, or leave --devices out"
    raise InfeasibleError(f"the plan is for {plan.devices} devices ({said}), not {devices}", where="--devices", fix=fix)
