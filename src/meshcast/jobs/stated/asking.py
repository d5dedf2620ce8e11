"""The one place where a stated run becomes a question: `--plan` for models of language, a mesh for the others."""

from __future__ import annotations

import math
from typing import Any

from meshcast.jobs.stated.parallelism import FOUR_BYTES, WHOLE_TYPES
from meshcast.jobs.stated.target import RunTarget
from meshcast.options import Options


def stated_options(target: RunTarget, options: Options) -> Options:
    """The options that a run is asked with, of the zoo's model `target.model.name`.

    What is asked for expressly stays: a cluster, a plan, a stack or a setting of the caller's own takes the place of the run's.

    Args:
        target: A run that lacks nothing.
        options: Fidelity, network and the like.
    """
    assert target.model is not None
    assert target.on is not None
    assert target.stack is not None
    own = options.asked
    # A stack that is asked for has been brought already, and overlaps as it does.
    chosen = options if options.brought is not None else options.with_stack(target.stack, but=own)
    changes: dict[str, Any] = {} if options.brought is not None else {"overlap": target.overlap}
    changes |= {"on": target.on, "devices": target.devices}
    # Of TPUs no power is known by values.
    changes |= {"data": target.values} if target.on.device.kind == "gpu" else {}
    settings = target.settings
    if target.model.planned:
        changes["plan"] = target.plan_text
    else:
        settings |= _computed_in(target) | _shared_out(target) | _microbatches(target) | _recomputed(target)
        changes["mesh"] = _mesh(target)
    if "plan" in own or "mesh" in own:
        changes = {name: value for name, value in changes.items() if name not in ("plan", "mesh")}
    told = {**_texts(settings), **options.program.settings}
    given = {name: value for name, value in changes.items() if name not in own}
    return chosen.having(**given, settings=told)


def _mesh(target: RunTarget) -> dict[str, int] | None:
    """A mesh of the degrees that the model's layers are split by; all devices share the batch where they are not."""
    assert target.model is not None
    if target.devices == 1:
        return None
    axes = target.model.axes
    degrees = {"fsdp": "fsdp", "context": "cp", "tensor": "tp"}
    split = {axis: int(target.plan.get(degree, 1)) for axis, degree in degrees.items()}
    split = {axis: size for axis, size in split.items() if axis in axes and size > 1}
    data = target.devices // math.prod(split.values())
    return {"data": data, **split} if data > 1 or not split else split


def _recomputed(target: RunTarget) -> dict[str, str]:
    """What a model without a plan computes again, where it can and the run says so."""
    return {"remat": str(target.plan["remat"])} if "remat" in target.plan else {}


def _microbatches(target: RunTarget) -> dict[str, int]:
    """Microbatches of a step, of models that add up gradients over several; nothing where a rank has but one."""
    assert target.model is not None
    sharing = int(target.plan.get("tp", 1)) * int(target.plan.get("cp", 1))
    together = target.devices // sharing * int(target.plan.get("mbs", 0))
    batch = target.filled_batch
    if not together or batch <= together or "accumulate" not in target.model.builder.overrides():
        return {}
    return {"accumulate": batch // together} if batch % together == 0 else {}


def _computed_in(target: RunTarget) -> dict[str, str]:
    """The precision of a model without mixed precision, which computes in the type of its parameters."""
    assert target.model is not None
    accepted = target.model.builder.overrides()
    precision = str(target.plan["precision"])
    narrow = {} if precision in WHOLE_TYPES else {"products": precision}
    whole = WHOLE_TYPES.get(precision, "bfloat16")
    return narrow | {"compute_dtype" if "compute_dtype" in accepted else "param_dtype": whole}


def _shared_out(target: RunTarget) -> dict[str, str]:
    """Split positions and a distributed optimizer of a model without a plan, whose weights are in half precision then."""
    found = {"sequence_parallel": "true"} if target.plan.get("sp") else {}
    if target.plan.get("zero") != 1:
        return found
    half = str(target.plan["precision"]) not in FOUR_BYTES
    return found | {"zero": "1"} | ({"param_dtype": "bfloat16"} if half else {})


def _texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
