"""How far a prediction is to be trusted: how its device was checked, an interval as wide as that asks for, and warnings of
assumptions that decide it.

An estimator's interval holds for what it was calibrated on. `interval = [low / a, high * b]` with `(a, b)` by class of device and
by whether one or many run (`estimate/data/trust.toml`, with the measurements behind every factor).
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

from meshcast.base import InputError
from meshcast.estimate import CALIBRATED_DEVICE
from meshcast.hardware import HOW_CHECKED_WORDS, Cluster, Device, HowChecked
from meshcast.lower import HOW_TO_INSTALL_GPU_COMPILER, found_gpu_compiler
from meshcast.options import Options
from meshcast.results import Prediction, Trust, UsualDistance

SCHEMA = "meshcast.trust/1"
DISTANCE_SCHEMA = "meshcast.lowering-distance/1"
# An assumption decides a prediction where what it is about takes this share of the step, or of the memory.
DECIDES = 0.1
NEARLY_FULL = 0.9
ASSUMED = "assumption"

Factors = tuple[float, float]


@functools.cache
def widenings() -> dict[HowChecked, dict[str, Factors]]:
    """By class, for `one` device and for `many`: what lower ends are divided by, and upper ends multiplied by.

    Raises:
        InputError: The file that comes with the package is another one.
    """
    data = _file()
    return {
        how: {size: (float(low), float(high)) for size, (low, high) in data[how].items()} for how in HOW_CHECKED_WORDS
    }


@functools.cache
def _file() -> dict[str, Any]:
    data = tomllib.loads(resources.files("meshcast.estimate").joinpath("data/trust.toml").read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA:
        raise InputError(f"the file's schema is {data.get('schema')!r}, not {SCHEMA!r}", where="trust.toml")
    return data


def grown(devices: int) -> float:
    """What upper ends are multiplied by because many devices wait for the slowest: more, the more there are.

    Of n parts whose steps deviate by `growth` the slowest lies `growth sqrt(2 ln n)` behind. What is known of that is in the
    step itself (`PowerLaw.slowest`, `Cluster.straggling`); as much again may come of hosts, storage and neighbours.
    """
    return 1.0 + float(_file()["scale"]["growth"]) * math.sqrt(2.0 * math.log(devices)) if devices > 1 else 1.0


def with_trust(prediction: Prediction, cluster: Cluster, options: Options) -> Prediction:
    """A prediction that says how its device was checked, with its interval widened and what was assumed in its warnings.

    It is asked once, when a prediction is whole: by a run, and of pipelines and jobs of traces when they are put together.
    """
    device, estimate = cluster.device, options.estimate
    own_profile = estimate.profile is not None and prediction.fidelity == "profiled"
    how: HowChecked = "measured" if own_profile else device.checked.how
    if prediction.devices > 1:
        low, high = _of_many(how, device)
        high *= grown(prediction.devices)
    else:
        low, high = widenings()[how]["one"]
    if prediction.fidelity == "roofline":  # nothing is faster than light, whoever checked
        low = 1.0
    timed = prediction.timed
    if timed is not None:
        # Factors below 1 narrow what kernels' ends add up to, and never beyond the step itself.
        ends = min(timed.step_time_s, timed.interval_s[0] / low), max(timed.step_time_s, timed.interval_s[1] * high)
        timed = replace(timed, interval_s=ends)
    return replace(
        prediction,
        trust=Trust(
            checked=how,
            against=f"profile {estimate.profile}" if own_profile else device.checked.against,
            widened=(low, high),
            energy=_energy(device),
            lowering=_usual_distance(prediction, device) if options.lowering.fusion == "compiler" else None,
        ),
        timed=timed,
        warnings=(*prediction.warnings, *_assumed(prediction, cluster)),
    )


def _of_many(how: HowChecked, device: Device) -> Factors:
    """The factors of many devices: of their class where runs of such clusters are published, of TPUs their own."""
    if not device.checked.clusters:
        return widenings()["data-sheet"]["many"]
    if device.kind == "tpu":
        low, high = _file()["tpu"]["many"]
        return float(low), float(high)
    return widenings()[how]["many"]


@functools.cache
def _distance() -> UsualDistance:
    """What modelled kernels usually miss, as it comes with the package.

    Raises:
        InputError: The file is another one.
    """
    data = tomllib.loads(
        resources.files("meshcast.estimate").joinpath("data/lowering.toml").read_text(encoding="utf-8")
    )
    if data.pop("schema", None) != DISTANCE_SCHEMA:
        raise InputError(f"the file's schema is not {DISTANCE_SCHEMA!r}", where="lowering.toml")
    return UsualDistance(**data)


def _usual_distance(prediction: Prediction, device: Device) -> UsualDistance | None:
    """How far modelled kernels are from the real compiler's; None where they are its own, or there is none for the device."""
    if prediction.lowering != "modelled" or device.kind != "gpu" or device.vendor.lower() != "nvidia":
        return None
    absent = isinstance(found_gpu_compiler(), str)
    return replace(_distance(), fix=HOW_TO_INSTALL_GPU_COMPILER if absent else "")


def _energy(device: Device) -> str:
    """Where a device's joules per FLOP come from."""
    if device.kind == "tpu" or device.energy is None or not device.energy.matrix:
        return "a share of the power budget" if device.kind != "gpu" else f"those of {CALIBRATED_DEVICE}, by clock"
    keys = [key for key in device.facts if key.startswith("energy.matrix.")]
    return ", ".join(dict.fromkeys(_source(device, device.facts[key].source) for key in keys))


def _source(device: Device, name: str) -> str:
    return device.sources[name].title if name in device.sources else name


def _assumed(prediction: Prediction, cluster: Cluster) -> Iterator[str]:
    """Assumptions of the catalogue that decide a prediction, one sentence each."""
    device, step = cluster.device, prediction.step_time_s
    if _is_assumed(device, "memory.capacity") and prediction.memory.peak > NEARLY_FULL * device.memory_bytes:
        yield _sentence(device, "memory.capacity", "its memory")
    if not step or prediction.breakdown is None:
        return
    if _is_assumed(device, "compute.launch_latency") and prediction.breakdown.overhead > DECIDES * step:
        share = prediction.breakdown.overhead / step
        yield _sentence(device, "compute.launch_latency", f"its launches ({share:.0%} of the step)")
    if _is_assumed(device, "power.tdp") and (prediction.energy_j or 0.0) > NEARLY_FULL * device.tdp_watts * step:
        yield _sentence(device, "power.tdp", "its power cap")
    yield from _of_networks(prediction, cluster, step)


def _of_networks(prediction: Prediction, cluster: Cluster, step: float) -> Iterator[str]:
    """What is assumed about levels whose collectives take a share of the step, where they are waited for."""
    if prediction.breakdown is None or prediction.breakdown.exposed_communication < DECIDES * step:
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for share in prediction.collectives:
        seconds[share.level] += share.seconds
    for index, level in enumerate(cluster.levels):
        if seconds[level.name] < DECIDES * step:
            continue
        if level.assumed:
            yield f"assumed of {cluster.name}'s {level.name}: {level.assumed}"
        for key in ("links", "link_bandwidth"):
            fact = cluster.facts.get(f"levels.{index}.{key}")
            if fact is not None and fact.source == ASSUMED:
                what = f"{key.replace('_', ' ')} of {cluster.name}'s {level.name}"
                yield f"assumed: {what}, {fact.text}" + (f" ({fact.note})" if fact.note else "")


def _is_assumed(device: Device, key: str) -> bool:
    return key in device.facts and device.facts[key].source == ASSUMED


def _sentence(device: Device, key: str, what: str) -> str:
    fact = device.facts[key]
    return f"assumed of {device.name}: {what}, {fact.text}" + (f" ({fact.note})" if fact.note else "")
