"""The one place where a run's plan becomes a prediction.

Plans without stages of a pipeline are meshes over the axes that the zoo's models have; others need stage programs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshcast.errors import UnsupportedError
from meshcast.options import Options
from meshcast.pipeline import prepare
from meshcast.results import Prediction
from meshcast.validate.runs.target import RunTarget

_AXES = {"dp": "data", "fsdp": "fsdp", "ep": "expert", "tp": "tensor"}
_REMAT = {"none": "none", "selective": "dots", "full": "full"}
_DTYPES = {"bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}


def predict_run(target: RunTarget, options: Options, *, over_memory: bool = False) -> Prediction:
    """The prediction of a run that lacks nothing.

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
    mesh, settings = mesh_and_settings(target)
    chosen = replace(
        options.with_stack(target.stack), on=target.on, devices=target.devices, mesh=mesh or None, settings=settings,
        overlap=target.overlap, levers=False,
    )  # fmt: skip
    run = prepare(target.model.name, chosen)
    if over_memory and run.memory.peak > run.device.memory_bytes:
        roomy = replace(run.device, memory_bytes=float(run.memory.peak))
        run = replace(run, cluster=replace(run.cluster, device=roomy))
    return run.predict()


def mesh_and_settings(target: RunTarget) -> tuple[dict[str, int], dict[str, str]]:
    """The mesh of a plan and the settings of its model.

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
    if "compute_dtype" in accepted:
        settings["compute_dtype"] = _DTYPES[precision]
    if "remat" in plan and "remat" in accepted:
        settings["remat"] = _REMAT[str(plan["remat"])]
    if plan.get("sp") and "sequence_parallel" in accepted:
        settings["sequence_parallel"] = True
    steps = target.batch // (int(plan["mbs"]) * _ranks(target))
    if steps > 1:
        if "accumulate" not in accepted:
            raise UnsupportedError(f"{target.model.name} does not accumulate gradients ({steps} microbatches)")
        settings["accumulate"] = steps
    return mesh, {name: _text(value) for name, value in settings.items()}


def _ranks(target: RunTarget) -> int:
    """Ranks that share the batch."""
    plan = target.plan
    return int(plan.get("dp", 1)) * int(plan.get("fsdp", 1)) * int(plan.get("ep", 1))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
