"""The inputs of a prediction: every field of `Options`, and of a model every key of its plan and every setting.

Every declaration of an option says by which name it is told (`options.declared`), so that a new one cannot be forgotten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.hardware import Cluster, Conditions, Device, LinkCondition
from meshcast.jobs.described.asked import Asked
from meshcast.options import InWords, Options, option_places
from meshcast.results import Inputs, Prediction
from meshcast.zoo import Plan

# In this order; all others come behind them as they are declared.
ORDER = (
    "on", "fidelity", "profile", "simulator", "network", "partitioner", "lowering", "clocks", "data", "host", "dims",
    "trip_counts", "indices", "approximate", "placement", "fabric", "beside", "scheduler", "channels", "contention", "overlap",
    "durations", "fusion", "attention_library", "layers", "ragged", "host_costs",
)  # fmt: skip
# What the program or the plan has made of them is told by the same names.
RESOLVED = ("devices", "mesh")


def told_options() -> dict[str, str]:
    """The names that options are told by, by their flat names."""
    told = {name: label for name, place in option_places().items() if (label := place.field.declaration.told)}
    return {name: told[name] for name in (*(each for each in ORDER if each in told), *told)}


def inputs_of(options: Options, asked: Asked | None, prediction: Prediction, device: Device) -> Inputs:
    """Everything that shaped a prediction.

    Args:
        options: Everything besides the target, with what a stack brings.
        asked: What the model is asked for; None where the target is a program, a pipeline's file or traces.
        prediction: What came of it, which knows the mesh and the devices.
        device: What it runs on.
    """
    user = options.asked
    stacks = options.brought.fields if options.brought is not None else ()
    labels = told_options()
    values: dict[str, Any] = {label: _plain(options.value(name)) for name, label in labels.items()}
    chosen = {label for name, label in labels.items() if name in user}
    by_stack = {label for name, label in labels.items() if name in stacks and name not in user}
    state = _conditions(options.network.conditions)
    values |= state
    chosen |= {name for name, each in state.items() if each}
    values |= {"devices": prediction.devices, "mesh": dict(prediction.mesh)}
    chosen |= {name for name in RESOLVED if name in user}
    values["stack"] = options.brought.stack if options.brought is not None else None
    chosen |= {"stack"} if options.brought is not None else set()
    if asked is not None:
        model, said = _of_model(asked, values)
        values = {"on": values["on"]} | model | values
        chosen |= said | ({"plan"} if asked.plan is not None else set())
        by_stack |= (
            {"attention"} if "attention" in stacks and "attention" in model and "attention" not in said else set()
        )
    elif prediction.facts:  # a program's own: nothing of the prediction's options
        values = {"on": values["on"]} | dict(prediction.facts) | values
        chosen |= {name for name, _ in prediction.facts}
    elif prediction.pipeline is not None:
        share = prediction.pipeline
        values |= {
            "schedule": share.schedule,
            "microbatches": share.microbatches,
            "virtual_stages": share.virtual_stages,
        }
        chosen |= {"schedule", "microbatches", "virtual_stages"}  # by its file
    # What has no part in this prediction is not told as if it had, unless it was asked for.
    idle = _without_part(device, values, known=asked is not None or bool(prediction.facts)) - chosen
    values |= dict.fromkeys(idle)
    by_stack -= idle
    return Inputs(
        values=values,
        defaults=tuple(name for name in values if name not in chosen | by_stack | {"model"}),
        by_stack=tuple(name for name in values if name in by_stack - chosen),
        in_plan=tuple(sorted(Plan.names_in(values.get("plan")))),
    )


def _without_part(device: Device, values: Mapping[str, Any], *, known: bool) -> set[str]:
    """Names of the software's ways that have no part in a prediction.

    The library of fused attention is for NVIDIA's GPUs, and for what attends so; TPUs have a compiler of their own, which fuses
    and lays out as it does (`lower`).

    Args:
        device: What it runs on.
        values: All inputs.
        known: Whether they say how it attends; else a program may hold fused calls.
    """
    fused = not known or "flash" in str(values.get("attention", ""))
    idle = set() if fused and device.platform == "cuda" else {"attention_library"}
    return idle | ({"fusion", "layer_arrays", "ragged_products"} if device.kind == "tpu" else set())


def _of_model(asked: Asked, taken: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A model's inputs, and which the user decided; a setting whose name an option has is told as one (`set.placement`)."""
    names = {name: f"set.{name}" if name in taken else name for name in asked.values()}
    found: dict[str, Any] = {names[name]: _plain(value) for name, value in asked.values().items()}
    # What the device decided is told beside the plan, as it is without one.
    plan = asked.plan if asked.plan is None or "attention" in asked.said else replace(asked.plan, attention=None)
    found["plan"] = str(plan) if plan is not None else None
    own = {
        each.name: _plain(getattr(asked.builder.config, each.name)) for each in dataclasses.fields(asked.builder.config)
    }
    found["model"] = {"family": asked.builder.module, **own}
    return found, {names[name] for name in asked.said if name in names}


def _conditions(conditions: Conditions) -> dict[str, Any]:
    """State of devices and links, as `--slow`, `--link` and `--background` say it."""
    devices = {**conditions.speed, **conditions.kinds}
    return {
        "slow": {str(device): devices[device] for device in sorted(devices)},
        "link": {_place(each): each.share for each in conditions.links},
        "background": dict(conditions.background),
    }


def _place(condition: LinkCondition) -> str:
    device = "" if condition.device is None else f":{condition.device}"
    return condition.level + device + (f"x{condition.links}" if condition.links is not None else "")


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Cluster):
        return value.name
    if isinstance(value, (Path, InWords)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
