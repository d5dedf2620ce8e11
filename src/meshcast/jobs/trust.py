"""How far a prediction is to be trusted: how its device was checked, an interval as wide as that asks for, and warnings of
assumptions that decide it.

An estimator's interval holds for what it was calibrated on. On one device `interval = [low / a, high * b]` with `(a, b)` by class
of device (`estimate/data/trust.toml`, with the measurements behind every factor); on many by the distance from runs that others
published (`run_widths.py`).
"""

from __future__ import annotations

import functools
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources

from meshcast.base import InputError
from meshcast.estimate import CALIBRATED_DEVICE
from meshcast.hardware import HOW_CHECKED_WORDS, Cluster, Device, HowChecked
from meshcast.jobs.run_widths import grown, interval_of_many, trust_data
from meshcast.lower import HOW_TO_INSTALL_GPU_COMPILER, found_gpu_compiler
from meshcast.options import Options
from meshcast.results import Prediction, Trust, UsualDistance
from meshcast.zoo import program_called

DISTANCE_SCHEMA = "meshcast.lowering-distance/1"
# An assumption decides a prediction where what it is about takes this share of the step, or of the memory.
DECIDES = 0.1
NEARLY_FULL = 0.9
ASSUMED = "assumption"

Factors = tuple[float, float]


@functools.cache
def widenings() -> dict[HowChecked, Factors]:
    """By class, of one device: what lower ends are divided by, and upper ends multiplied by."""
    data = trust_data()
    return {how: (float(data[how]["one"][0]), float(data[how]["one"][1])) for how in HOW_CHECKED_WORDS}


def with_trust(
    prediction: Prediction, cluster: Cluster, options: Options, *, light: Callable[[], float] = lambda: 0.0
) -> Prediction:
    """A prediction that says how its device was checked, with its interval widened and what was assumed in its warnings.

    It is asked once, when a prediction is whole: by a run, and of pipelines and jobs of traces when they are put together.
    On one device a lower end is not widened past the seconds that the step takes at the speed of `light`: nobody's doubt makes
    a device faster than its data sheet.
    """
    device, estimate = cluster.device, options.estimate
    own_profile = estimate.profile is not None and prediction.fidelity == "profiled"
    how: HowChecked = "measured" if own_profile else device.checked.how
    low, high = widenings()[how] if prediction.devices == 1 else (1.0, grown(prediction.devices))
    timed = prediction.timed
    recorded = prediction.fidelity == "trace" and prediction.provenance.measured == 1
    if recorded:  # a recording that is replayed is as long as it was, however well its device is modelled
        low = high = 1.0
    elif timed is not None and prediction.devices > 1 and prediction.fidelity != "roofline":
        stack = options.brought.stack if options.brought is not None else None
        unlike = _unlike(prediction, options)
        ends = interval_of_many(timed.step_time_s, timed.interval_s, device, stack, prediction.devices, unlike)
        if min(*ends, timed.interval_s[1]) > 0:
            low, high = timed.interval_s[0] / ends[0], ends[1] / timed.interval_s[1]
        timed = replace(timed, interval_s=ends)
    elif timed is not None:
        own = timed.interval_s[0]
        if low > 1 and own > 0:
            low = 1.0 if prediction.fidelity == "roofline" else own / max(own / low, min(own, light()))
        timed = replace(timed, interval_s=(own / low, timed.interval_s[1] * high))
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


def _unlike(prediction: Prediction, options: Options) -> list[str]:
    """What sets a program apart from most that were published: experts that tokens choose among, a sequence that is shared."""
    experts = options.program.settings.get("experts", _experts(prediction.name))
    several = prediction.mesh.get("expert", 1) > 1 or int(experts) > 1
    return [name for name, there in (("experts", several), ("context", prediction.mesh.get("context", 1) > 1)) if there]


def _experts(name: str) -> int:
    """Experts of a program of the zoo, in any of its modes; 0 of anything else."""
    program = program_called(name)
    return getattr(program.config, "experts", 0) if program else 0


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
        yield _sentence(device, "memory.capacity", "memory capacity")
    if not step or prediction.breakdown is None:
        return
    if _is_assumed(device, "compute.launch_latency") and prediction.breakdown.overhead > DECIDES * step:
        share = prediction.breakdown.overhead / step
        yield _sentence(device, "compute.launch_latency", "launch latency") + f"; overhead is {share:.0%} of the step"
    if _is_assumed(device, "power.tdp") and (prediction.energy_j or 0.0) > NEARLY_FULL * device.tdp_watts * step:
        yield _sentence(device, "power.tdp", "power cap")
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
            yield f"assumed for {level.name} of {cluster.name}: {level.assumed}"
        for key in ("links", "link_bandwidth"):
            fact = cluster.facts.get(f"levels.{index}.{key}")
            if fact is not None and fact.source == ASSUMED:
                what = f"{level.name} of {cluster.name}: {key.replace('_', ' ')}"
                yield f"assumed for {what} {fact.text}" + (f" ({fact.note})" if fact.note else "")


def _is_assumed(device: Device, key: str) -> bool:
    return key in device.facts and device.facts[key].source == ASSUMED


def _sentence(device: Device, key: str, what: str) -> str:
    fact = device.facts[key]
    return f"assumed for {device.name}: {what} {fact.text}" + (f" ({fact.note})" if fact.note else "")
