"""Numbers of hardware that are said by what they are now: `2x`, `+10%`, or a quantity of its own."""

from __future__ import annotations

import re
from decimal import Decimal

from meshcast.base import UsageError, nearest
from meshcast.hardware import Cluster, NetworkLevel

_TIMES = re.compile(r"(?P<factor>\d+(?:\.\d+)?)\s*x")
_PERCENT = re.compile(r"(?P<sign>[+-])\s*(?P<percent>\d+(?:\.\d+)?)\s*%")
LEVEL_KEYS = ("link_bandwidth", "latency", "size")


def hardware_value(cluster: Cluster, key: str, text: str) -> str:
    """A quantity as files have it, of one that may be relative.

    Args:
        cluster: What it is relative to.
        key: A number of the device (`memory.bandwidth`), or of a level of the network (`nvlink.link_bandwidth`).
        text: `2x`, `+10%`, or a quantity, which stays as it is.

    Raises:
        UsageError: The hardware has no such number.
    """
    factor = _factor(text)
    if factor is None:
        return text.replace(" ", "")
    value, unit = number_of(cluster, key)
    if unit == "1":  # of things: whole
        return f"{round(value * factor)}"
    # Without an exponent, whose sign would begin another change.
    return f"{Decimal(f'{value * factor:.12g}'):f}{unit}"


def number_of(cluster: Cluster, key: str) -> tuple[float, str]:
    """A number of hardware, and its SI unit.

    Raises:
        UsageError: There is none of that name.
    """
    table, _, name = key.partition(".")
    level = next((each for each in cluster.levels if each.name == table), None)
    if level is not None and name in LEVEL_KEYS:
        return _of_level(level, name)
    fact = cluster.device.facts.get(key)
    if fact is None:
        known = [*cluster.device.facts, *(f"{each.name}.{name}" for each in cluster.levels for name in LEVEL_KEYS)]
        raise UsageError(f"{cluster.name} has no number {key!r}", where="hardware", fix=nearest(key, known))
    return fact.value, fact.unit


def hardware_keys(cluster: Cluster) -> list[str]:
    """Numbers of hardware whose change may change a step: rates and capacities of the device, and its levels' links."""
    wanted = (
        "matrix.",
        "memory.",
        "cache.",
        "vector.",
        "compute.clock",
        "compute.launch_latency",
        "power.tdp",
        "host.",
    )
    found = [key for key in cluster.device.facts if key.startswith(wanted) and key != "cache.partitions"]
    return found + [f"{level.name}.{name}" for level in cluster.levels for name in ("link_bandwidth", "latency")]


def _of_level(level: NetworkLevel, name: str) -> tuple[float, str]:
    if name == "link_bandwidth":
        return level.link_bandwidth, "bytes/s"
    return (level.latency_s, "s") if name == "latency" else (float(level.size), "1")


def _factor(text: str) -> float | None:
    if found := _TIMES.fullmatch(text.strip()):
        return float(found["factor"])
    if found := _PERCENT.fullmatch(text.strip()):
        return 1 + float(found["percent"]) / 100 * (1 if found["sign"] == "+" else -1)
    return None
