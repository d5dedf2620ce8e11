"""A plan without stages: the mesh and the settings of the model's own training step, one program on all devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from meshcast.base import InfeasibleError, UnsupportedError, UsageError
from meshcast.hardware import Device, host_rate
from meshcast.programs import whole_setting
from meshcast.zoo import MARKED, PLAN_FLAG, UNMARKED, Builder, Plan, Remat

# Settings that a plan decides.
DECIDED = (
    "accumulate",
    "zero",
    "remat",
    "sequence_parallel",
    "attention",
    "products",
    "compute_dtype",
    "gradient_dtype",
)


MARKS = "gradient_dtype"
"""The setting of training steps whose layers mark all that kernels keep (`zoo.layers.saving.kept`): those of language models."""


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
    refuse_decided(plan, DECIDED, settings)
    check(plan, builder, settings, mode="train")
    microbatches = microbatches_of(plan, settings)
    wanted: dict[str, Any] = {
        "batch": plan.mbs * plan.batch_shards * microbatches,
        "accumulate": microbatches,
        "remat": _remat(plan, builder, marks=MARKS in known),
        "zero": plan.zero % 3,
        "sequence_parallel": plan.sp,
        "attention": plan.attending,
        "products": plan.products,
        "compute_dtype": plan.compute_dtype,
        "gradient_dtype": plan.gradient_dtype,
    }
    neutral = {
        "accumulate": 1,
        "zero": 0,
        "remat": "none" if MARKS in known else "autodiff",
        "sequence_parallel": False,
        "attention": "plain",
        "products": "plain",
        "gradient_dtype": "float32",
    }
    for name in [name for name in wanted if name not in known]:
        if wanted[name] != neutral.get(name, known.get(name)):
            raise UnsupportedError(
                f"the training step of {builder.name} has no {name}, and {plan} asks for {name}={wanted[name]}",
                where=PLAN_FLAG,
                fix="leave it out of the plan, or choose a language model of the zoo",
            )
        del wanted[name]
    if wanted.get("zero") and plan.in_half and "param_dtype" not in settings:
        wanted["param_dtype"] = "bfloat16"  # the fp32 copy is in the optimizer's state, shared out
    return {**settings, **wanted}


def refuse_decided(plan: Plan, decided: Iterable[str], settings: Mapping[str, Any]) -> None:
    """Refuses settings that a plan decides.

    Raises:
        UsageError: There is one among them.
    """
    for name in decided:
        if name in settings:
            raise UsageError(
                f"{name} is decided by the plan {plan}", where="--set", fix="say it in the plan, or use --mesh"
            )


def _remat(plan: Plan, builder: Builder, *, marks: bool) -> Remat:
    """The recomputation that the plan means for a model; models without the shared products do not mark what kernels keep."""
    if marks or plan.remat not in MARKED:
        return plan.remat
    if plan.remat == "none":
        return "autodiff"
    raise UnsupportedError(
        f"{builder.name} does not mark what attention keeps, and {plan} asks for remat={plan.remat}",
        where=PLAN_FLAG,
        fix="use remat=" + ", ".join(UNMARKED),
    )


def check(plan: Plan, builder: Builder, settings: Mapping[str, Any], *, mode: str) -> None:
    """Refuses a plan that does not divide the model.

    Args:
        plan: The plan.
        builder: The model.
        settings: What is set besides.
        mode: What the model does.

    Raises:
        InfeasibleError: Heads, experts or the sequence are not divided.
        UnsupportedError: Something is not modelled.
    """
    config = builder.configured(**settings)
    length = length_of(builder, config, settings, mode=mode)
    _halves(plan, length, builder.name)
    for what, count, key in (
        ("attention heads", getattr(config, "heads", None), "tp"),
        ("experts", getattr(config, "experts", None), "ep"),
        ("the sequence", length, "cp"),
    ):
        degree = plan.cp * plan.tp if plan.sp and key == "cp" else getattr(plan, key)
        said = f"cp={plan.cp} x tp={plan.tp}, which sp=1 splits it over" if degree != getattr(plan, key) else ""
        if degree > 1 and not count:
            raise InfeasibleError(
                f"{key}={degree} splits {what}, and {builder.name} has none",
                where=PLAN_FLAG,
                fix=f"leave {key} out of the plan",
            )
        if count and count % degree:
            close = " or ".join(str(n) for n in near_divisors(count, degree))
            raise InfeasibleError(
                f"{what} of {builder.name}: {count} is not divisible by {said or f'{key}={degree}'}",
                where=PLAN_FLAG,
                fix=f"a product of {close}, or another seq" if said else f"use {key}={close}",
            )


def _halves(plan: Plan, length: int | None, name: str) -> None:
    """With fused kernels every device that splits a sequence has two chunks of it (`zoo.layers.context_attention`)."""
    if plan.cp > 1 and plan.attending.startswith("flash") and length and length % (2 * plan.cp):
        raise InfeasibleError(
            f"the sequence of {name}: {length} is not divisible by 2 x cp={plan.cp}, chunks that attention={plan.attending} has",
            where=PLAN_FLAG,
            fix=f"use seq={-(-length // (2 * plan.cp)) * 2 * plan.cp}, or attention=all-gather",
        )


def near_divisors(count: int, degree: int) -> list[int]:
    """What divides a count and is nearest to a degree from below and from above; what there is."""
    found = [n for n in range(1, count + 1) if count % n == 0]
    return [n for n in found if n < degree][-1:] + [n for n in found if n > degree][:1]


def length_of(builder: Builder, config: Any, settings: Mapping[str, Any], *, mode: str) -> int | None:
    """Positions of a sequence: as set, as the mode's program has it, or as many as the model has."""
    known = builder.overrides(mode)
    if "seq" not in known:
        return None
    return whole_setting(settings, "seq") or known["seq"] or getattr(config, "positions", None)


def microbatches_of(plan: Plan, settings: Mapping[str, Any]) -> int:
    """Microbatches of a step with the global batch that is set."""
    return plan.microbatches_of(whole_setting(settings, "batch"))


def check_device(plan: Plan, device: Device) -> None:
    """Refuses a device without what the plan's products need.

    Raises:
        UnsupportedError: It has no such products, or nothing is known of its link to the host, over which the plan moves state.
    """
    if plan.offload != "none":
        host_rate(device)
    # The formats with a scale for each block (OCP Microscaling) come together: who has f6 or f4 multiplies by blocks.
    needed = {"fp8": {"f8"}, "fp8-rowwise": {"f8"}, "mxfp8": {"f6", "f4"}, "nvfp4": {"f4"}, "int8": {"i8"}}.get(
        plan.precision
    )
    if needed and needed.isdisjoint(device.matrix_flops):
        has = ", ".join(sorted(device.matrix_flops))
        other = "fp8" if "f8" in device.matrix_flops else "bf16"
        raise UnsupportedError(
            f"precision={plan.precision}, and {device.name} multiplies matrices of {has} only",
            where=PLAN_FLAG,
            fix=f"use precision={other}",
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
