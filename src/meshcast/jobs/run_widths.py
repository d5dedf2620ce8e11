"""Intervals of steps of many devices: as wide as published runs lie from their predictions, by the distance from what was seen.

With t the step and n devices,

    interval = [ t exp(-w k), t exp(w k') (1 + g sqrt(2 ln n)) ],    w^2 = width^2 + stack^2 + hardware^2 + experts^2 + context^2

`width` is that of runs whose software and class of hardware others published runs of; `stack` counts where nobody did of the
software, `hardware` where nobody did of the class, `experts` where tokens choose among several, `context` where devices share a
sequence: published runs of these lie farther from their predictions. Kernels whose own ends are farther apart than those of
published runs usually are make it wider by as much: `k = max(1, ln(t / low) / usual)` below, and likewise above. Errors of
many kernels do not add up to the sum of their ends, which is why these are not the interval themselves. The last factor is
the slowest of n devices that all wait for (`growth`). Every number, and the share of rows of sources left out that it leaves
inside, is in
`estimate/data/trust.toml`.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Collection, Mapping
from importlib import resources
from typing import Any

from meshcast.base import InputError
from meshcast.hardware import Device
from meshcast.simulate import Interval

SCHEMA = "meshcast.trust/1"


@functools.cache
def trust_data() -> Mapping[str, Any]:
    """The file that says how much wider intervals are where less was checked.

    Raises:
        InputError: The file that comes with the package is another one.
    """
    data = tomllib.loads(resources.files("meshcast.estimate").joinpath("data/trust.toml").read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA:
        raise InputError(f"the file's schema is {data.get('schema')!r}, not {SCHEMA!r}", where="trust.toml")
    return data


def grown(devices: int) -> float:
    """What upper ends are multiplied by because many devices wait for the slowest: more, the more there are.

    Of n parts whose steps deviate by `growth` the slowest lies `growth sqrt(2 ln n)` behind. What is known of that is in the
    step itself (`PowerLaw.slowest`, `Cluster.straggling`); as much again may come of hosts, storage and neighbours.
    """
    return 1.0 + float(trust_data()["scale"]["growth"]) * math.sqrt(2.0 * math.log(devices)) if devices > 1 else 1.0


def width_of_many(device: Device, stack: str | None, unlike: Collection[str] = ()) -> float:
    """How far a step may lie from its prediction, as a logarithm, before kernels and the number of devices count.

    Args:
        device: The device; its class was seen where runs of clusters of it were published.
        stack: The software stack's name; None is XLA as it comes.
        unlike: What sets the program apart from most: `experts`, `context`.
    """
    known = trust_data()["many"]
    parts = [float(known["width"])]
    if (stack or "xla") not in known["stacks"]:
        parts.append(float(known["stack"]))
    if not device.checked.clusters:
        parts.append(float(known["hardware"]))
    parts += [float(known[name]) for name in unlike]
    return math.hypot(*parts)


def interval_of_many(
    step: float, ends: Interval, device: Device, stack: str | None, devices: int, unlike: Collection[str] = ()
) -> Interval:
    """The interval of a step of many devices.

    Args:
        step: Seconds of the step.
        ends: What its kernels' ends add up to.
        device: The device.
        stack: The software stack's name.
        devices: How many there are.
        unlike: What sets the program apart from most.
    """
    if step <= 0:
        return ends
    below, above = trust_data()["many"]["usual"]["tpu" if device.kind == "tpu" else "gpu"]
    width = width_of_many(device, stack, unlike)
    low = width * (max(1.0, math.log(step / ends[0]) / below) if ends[0] > 0 else 1.0)
    high = width * max(1.0, math.log(max(step, ends[1]) / step) / above)
    return step * math.exp(-low), step * math.exp(high) * grown(devices)
