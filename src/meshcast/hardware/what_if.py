"""Hardware of the catalogue, or of a file, with single numbers changed: `dgx-h100+memory.bandwidth=6.7TB/s`.

A device has the keys of its file, read and checked as they are there: `memory.bandwidth`. A level of the network has
`link_bandwidth`, `latency` and, where one switch connects all of it, `size`, behind its name: `nvlink.link_bandwidth`; other
sizes and shapes are for a file of one's own to say. A number that was derived from others is not derived again, as with a file
that has a `base`. What was said of a number goes with it: the new one is the user's, and nobody has checked anything with it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.base import Dimension, InputError, KeptBeside, UsageError, nearest, parse_quantity
from meshcast.hardware import loader
from meshcast.hardware.checked import DATA_SHEET
from meshcast.hardware.cluster import Cluster, NetworkLevel
from meshcast.hardware.device import Device, Fact
from meshcast.hardware.document import Document

WHAT_IF_MARK = "+"
_FORM = re.compile(r"(?P<base>[^+=]+)(?P<changes>(?:\+[A-Za-z0-9_.-]+=[^+=]+)+)")
_LEVEL = {"link_bandwidth": Dimension.BANDWIDTH, "latency": Dimension.TIME, "size": Dimension.COUNT}
FLAG = "--on"
# A grid over numbers of a device and of its network asks for each device once for each of the network's values.
_DEVICES: KeptBeside[Device] = KeptBeside(512)
VALUE_OF_A_FLAG = (
    "write a value with its unit, such as memory.bandwidth=6.7TB/s; factors (2x, +10%) are for --what-if and spaces"
)


def split(text: str) -> tuple[str, dict[str, str]]:
    """The hardware that a text starts from, and the changes behind it; none where the text is a name or an existing file.

    Raises:
        UsageError: A key is changed twice.
    """
    found = _FORM.fullmatch(text)
    if found is None or Path(text).exists():
        return text, {}
    changes: dict[str, str] = {}
    for item in found["changes"].split(WHAT_IF_MARK)[1:]:
        key, _, value = item.partition("=")
        if key in changes:
            raise UsageError(f"{key} is changed twice", where=FLAG, fix="give it once")
        changes[key] = value.strip()
    return found["base"], changes


def changed(cluster: Cluster, changes: Mapping[str, str], read_device: Callable[[], Document]) -> Cluster:
    """A cluster whose device and levels have other numbers.

    Args:
        cluster: What it starts from.
        changes: New numbers by dotted key.
        read_device: The document of the cluster's device.

    Raises:
        UsageError: There is no such number, or it is none.
    """
    places = {level.name: index for index, level in enumerate(cluster.levels)}
    of_levels = {key: value for key, value in changes.items() if key.partition(".")[0] in places}
    of_device = {key: value for key, value in changes.items() if key not in of_levels}
    if of_device:
        _check_known(cluster, of_device)
        device = cluster.device
        made = _DEVICES.of(device, tuple(of_device.items()), lambda: _device(device, of_device, read_device()))
        cluster = replace(cluster, device=made)
    if not of_levels:
        return cluster
    levels, facts = list(cluster.levels), dict(cluster.facts)
    for key, value in of_levels.items():
        table, _, name = key.partition(".")
        index = places[table]
        levels[index], facts[f"levels.{index}.{name}"] = _level(levels[index], name, value, key)
    _check_sizes(levels, of_levels)
    return replace(
        cluster,
        name=cluster.name + _said(of_levels),
        aliases=(),
        device=replace(cluster.device, checked=cluster.device.checked.alone),
        levels=tuple(levels),
        facts=facts,
    )


def changed_numbers(cluster: Cluster, changes: Mapping[str, str]) -> dict[str, float]:
    """New numbers by dotted key, in SI units.

    Raises:
        UsageError: There is no such number.
        InputError: A value is none.
    """
    levels = {level.name for level in cluster.levels}
    found: dict[str, float] = {}
    for key, value in changes.items():
        table, _, name = key.partition(".")
        if table in levels and name in _LEVEL:
            found[key] = parse_quantity(f"{value} devices" if value.isdigit() else value, _LEVEL[name])
        else:
            _check_known(cluster, {key: value})
            found[key] = parse_quantity(value, Dimension(cluster.device.facts[key].unit))
    return found


def _check_known(cluster: Cluster, of_device: Mapping[str, str]) -> None:
    for key in of_device:
        if key not in cluster.device.facts:
            known = [*cluster.device.facts, *(f"{level.name}.{name}" for level in cluster.levels for name in _LEVEL)]
            raise UsageError(
                f"{cluster.device.name} has no number {key!r}, nor has a level of {cluster.name}",
                where=FLAG,
                fix=nearest(key, known),
            )


def _said(changes: Mapping[str, str]) -> str:
    """Changes behind a name, which may become that of a file."""
    return "".join(f"{WHAT_IF_MARK}{key}={value.replace('/', 'p')}" for key, value in changes.items())


def _level(level: NetworkLevel, name: str, value: str, key: str) -> tuple[NetworkLevel, Fact]:
    """The level with one number changed, of which nothing is taken for granted any more, and that number."""
    if name not in _LEVEL:
        raise UsageError(f"no number {key!r} to change", where=FLAG, fix=nearest(name, _LEVEL))
    try:
        number = parse_quantity(f"{value} devices" if name == "size" and value.isdigit() else value, _LEVEL[name])
    except InputError as error:
        raise UsageError(f"{key}: {error.message}", where=FLAG, fix=VALUE_OF_A_FLAG) from None
    if number <= 0:
        raise UsageError(f"{key}={value} is not above 0", where=FLAG, fix=VALUE_OF_A_FLAG)
    fact = Fact(value=number, unit=_LEVEL[name].value, text=value, source="user")
    if name == "size":
        if level.topology != "switch" or number != int(number):
            raise UsageError(
                f"{key}={value}: a whole number of devices, where one switch connects them all ({level.name} is a "
                f"{level.topology})",
                where=FLAG,
                fix="describe the cluster in a file of its own",
            )
        return replace(level, size=int(number)), fact
    field = {"latency": "latency_s"}.get(name, name)
    return replace(level, assumed="", **{field: number}), fact  # type: ignore[arg-type]


def _check_sizes(levels: list[NetworkLevel], changes: Mapping[str, str]) -> None:
    """Refuses levels that do not grow outwards."""
    for inner, outer in itertools.pairwise(levels):
        if outer.size <= inner.size and any(key.endswith(".size") for key in changes):
            raise UsageError(
                f"{inner.name}.size is {inner.size}, and {outer.name} around it has {outer.size} devices",
                where=FLAG,
                fix="levels grow outwards",
            )


def _device(device: Device, changes: Mapping[str, str], document: Document) -> Device:
    own: dict[str, Any] = {}
    for key, value in changes.items():
        *tables, last = key.split(".")
        inner = own
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = {"value": value, "source": "user"}
    merged = loader.merged(document, {**own, "name": device.name + _said(changes), "aliases": []})
    try:
        return replace(loader.device(merged), checked=DATA_SHEET)  # nobody has such a device
    except InputError as error:
        raise UsageError(error.message, where=FLAG, fix=VALUE_OF_A_FLAG) from None
