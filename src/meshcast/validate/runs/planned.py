"""The one place where a run's plan becomes a prediction.

Plans without stages of a pipeline are meshes over the axes that the zoo's models have; others need stage programs. What
of a plan the zoo's programs cannot be told is said beside the prediction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshcast.errors import UnsupportedError
from meshcast.options import Options
from meshcast.pipeline import predict
from meshcast.results import Prediction
from meshcast.validate.runs.target import RunTarget

_ROOM = 2.0**60  # bytes: enough for any program
_AXES = {"dp": "data", "fsdp": "fsdp", "ep": "expert", "tp": "tensor"}
_REMAT = {"none": "none", "selective": "dots", "full": "full"}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}


def predict_run(
    target: RunTarget, options: Options, *, over_memory: bool = False
) -> tuple[Prediction, tuple[str, ...]]:
    """The prediction of a run that lacks nothing, and what of its plan is not in it.

    Args:
        target: The run.
        options: Fidelity, network and the like; hardware, model and stack are the run's.
        over_memory: Time it also where more memory is predicted than there is.

    Raises:
        UnsupportedError: The plan has parts that cannot be written as a program.
    """
    assert target.model is not None
    assert target.on is not None
    assert target.stack is not None
    cluster = target.on
    if over_memory:
        cluster = replace(cluster, device=replace(cluster.device, memory_bytes=_ROOM))
    mesh, settings, left_out = mesh_and_settings(target)
    chosen = replace(
        options.with_stack(target.stack), on=cluster, devices=target.devices, mesh=mesh or None, settings=settings,
        overlap=target.overlap, levers=False,
    )  # fmt: skip
    return predict(target.model.name, chosen), left_out


def mesh_and_settings(target: RunTarget) -> tuple[dict[str, int], dict[str, str], tuple[str, ...]]:
    """The mesh of a plan, the settings of its model, and what of the plan neither says.

    Raises:
        UnsupportedError: It needs a pipeline, context parallelism or a type that the zoo's programs do not have.
    """
    plan = target.plan
    for name, size, why in (("pp", plan.get("pp", 1), "a pipeline plan"), ("cp", plan.get("cp", 1), "a context plan")):
        if size != 1:
            raise UnsupportedError(f"needs {why} ({name}={size})", where="--plan")
    precision = str(plan["precision"])
    if precision not in _DTYPES:
        raise UnsupportedError(f"needs a recipe for precision {precision}", where="--plan")
    mesh = {axis: int(plan[name]) for name, axis in _AXES.items() if int(plan.get(name, 1)) > 1}
    settings: dict[str, Any] = target.settings
    assert target.model is not None
    accepted = target.model.builder.overrides()
    # Models without mixed precision compute in the type of their parameters.
    settings["compute_dtype" if "compute_dtype" in accepted else "param_dtype"] = _DTYPES[precision]
    if "remat" in plan and "remat" in accepted:
        settings["remat"] = _REMAT[str(plan["remat"])]
    left_out = [f"{name}={plan[name]}" for name in ("zero",) if plan.get(name)]
    if plan.get("sp") and "sequence_parallel" in accepted:
        settings["sequence_parallel"] = True
    elif plan.get("sp"):
        left_out.append("sp=1")
    if plan.get("attention", "plain") != "plain":
        left_out.append(f"attention={plan['attention']}")
    steps = target.batch // (int(plan["mbs"]) * _ranks(target))
    if steps > 1:
        if "accumulate" not in accepted:
            raise UnsupportedError(f"{target.model.name} does not accumulate gradients ({steps} microbatches)")
        settings["accumulate"] = steps
    notes = (f"{name} is not in the program that was predicted" for name in left_out)
    return mesh, {name: _text(value) for name, value in settings.items()}, tuple(notes)


def _ranks(target: RunTarget) -> int:
    """Ranks that share the batch."""
    plan = target.plan
    return int(plan.get("dp", 1)) * int(plan.get("fsdp", 1)) * int(plan.get("ep", 1))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
