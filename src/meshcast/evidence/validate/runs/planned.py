"""The one place where a run's plan becomes a prediction: `--plan` for models of language, a mesh for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.evidence.validate.runs.target import RunTarget
from meshcast.jobs import predict
from meshcast.options import Options
from meshcast.results import Prediction

_ROOM = 2.0**60  # bytes: enough for any program
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}


def predict_run(target: RunTarget, options: Options, *, over_memory: bool = False) -> Prediction:
    """The prediction of a run that lacks nothing.

    Args:
        target: The run.
        options: Fidelity, network and the like; hardware, model and stack are the run's.
        over_memory: Time it also where more memory is predicted than there is.

    Raises:
        MeshcastError: The plan cannot be carried out.
    """
    assert target.model is not None
    assert target.on is not None
    assert target.stack is not None
    cluster = target.on
    if over_memory:
        cluster = replace(cluster, device=replace(cluster.device, memory_bytes=_ROOM))
    chosen = options.with_stack(target.stack).having(
        on=cluster, devices=target.devices, overlap=target.overlap, levers=False
    )
    settings = target.settings
    if target.model.planned:
        return predict(target.model.name, chosen.having(plan=target.plan_text, settings=_texts(settings)))
    # Models without mixed precision compute in the type of their parameters.
    accepted = target.model.builder.overrides()
    precision = str(target.plan["precision"])
    if precision not in _DTYPES:
        raise UnsupportedError(
            f"{target.model.name} has no products in {precision}", where="precision", fix=f"one of {', '.join(_DTYPES)}"
        )
    settings["compute_dtype" if "compute_dtype" in accepted else "param_dtype"] = _DTYPES[precision]
    mesh = {"data": target.devices} if target.devices > 1 else None
    return predict(target.model.name, chosen.having(mesh=mesh, settings=_texts(settings)))


def _texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
