"""What the page offers: models with their settings, hardware, software stacks; and of a plan what divides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshcast.base import VERSION, MeshcastError
from meshcast.explore import OfferedPlans, model_shape, offered_plans
from meshcast.hardware import Cluster, Device, cluster_names, device_names, load_cluster, load_device
from meshcast.lower import found_gpu_compiler
from meshcast.options import fidelity_names, stack_names
from meshcast.programs import setting_value
from meshcast.serve.questions import builder_target, with_known_names
from meshcast.serve.wording import on_the_page
from meshcast.zoo import PLAN_WORDS, SERVE, Builder, Plan, model_named, models

# Settings that a plan decides, or that have a control of their own.
APART = (
    "mode",
    "batch",
    "accumulate",
    "zero",
    "remat",
    "sequence_parallel",
    "products",
    "compute_dtype",
    "gradient_dtype",
)


def catalogue_answer() -> dict[str, Any]:
    """Everything that can be chosen, by name."""
    return {
        "schema": "meshcast.page-catalogue/1",
        "version": VERSION,
        "models": [
            {"name": name, "family": each.module, "summary": each.summary, "modes": list(each.all_modes)}
            for name, each in models().items()
        ],
        "devices": [_device(load_device(name)) for name in device_names()],
        "clusters": [_cluster(load_cluster(name)) for name in cluster_names()],
        "stacks": list(stack_names()),
        "fidelities": ["auto", *fidelity_names()],
        "compiler": not isinstance(found_gpu_compiler(), str),
    }


def _device(device: Device) -> dict[str, Any]:
    return {"name": device.name, "kind": device.kind, "memory_bytes": device.memory_bytes}


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {"name": cluster.name, "device": cluster.device.name, "kind": cluster.device.kind}


def choices_answer(asked: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What a configuration of a model can be changed to; a plan that does not divide is the nearest one that does."""
    asked = with_known_names(asked)
    target = builder_target(asked, folder)
    builder = model_named(target)
    assert builder is not None
    settings = dict(asked["settings"])
    mode = str(settings.pop("mode", builder.mode))
    known = builder.overrides("decode" if mode == SERVE else mode)
    answer: dict[str, Any] = {
        "schema": "meshcast.page-choices/1",
        "name": builder.name,
        "on": asked["on"],
        "summary": builder.summary,
        "parameters": builder.parameters(),
        "mode": mode,
        "modes": list(builder.all_modes),
        "settings": [_setting(name, value) for name, value in known.items() if name not in APART],
        "batch": _batch(settings, known),
        "notes": list(builder.notes),
        "problem": None,
        "words": {name: list(words) for name, words in PLAN_WORDS.items()},
    }
    training = mode == "train"
    try:
        found = _offered(builder, target, asked, answer["batch"], training=training)
    except MeshcastError as error:
        return answer | {"problem": on_the_page(error.to_json())["error"], "plan": asked["plan"], "degrees": {}}
    return answer | {
        "plan": str(found.plan),
        "keys": _keys(found.plan),
        "degrees": {name: list(values) for name, values in found.degrees.items()},
        "mbs": list(found.mbs),
        "vp": list(found.vp),
        "sp": found.sp,
        "training": training,
    }


def _offered(builder: Builder, target: str, asked: Mapping[str, Any], batch: int, *, training: bool) -> OfferedPlans:
    wanted = Plan.parse(asked["plan"]) if asked["plan"] else Plan()
    # Plans divide sizes that every mode has: what other modes have besides is no part of a shape.
    sizes = builder.overrides("train") if "train" in builder.modes else {}
    shape = model_shape(
        target, {name: text for name, text in asked["settings"].items() if name in sizes and name != "mode"}
    )
    devices = asked["devices"] or wanted.devices
    return offered_plans(shape, devices=devices, batch=batch, wanted=wanted, training=training)


def _keys(plan: Plan) -> dict[str, Any]:
    return {
        name: getattr(plan, name)
        for name in ("dp", "fsdp", "tp", "sp", "pp", "vp", "cp", "ep", "mbs", "zero", *PLAN_WORDS)
    }


def _batch(settings: Mapping[str, str], known: Mapping[str, Any]) -> int:
    given = setting_value(settings["batch"]) if "batch" in settings else known.get("batch", 1)
    return given if isinstance(given, int) and given > 0 else 1


def _setting(name: str, value: Any) -> dict[str, Any]:
    kind = "switch" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "text"
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return {"name": name, "kind": kind, "value": "" if value is None else text.lower() if kind == "switch" else text}
