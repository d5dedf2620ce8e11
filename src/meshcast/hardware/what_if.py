"""Hardware of the catalogue, or of a file, with single numbers changed: `dgx-h100+memory.bandwidth=6.7TB/s`.

Keys are those of the files, read and checked as they are there: `memory.bandwidth` is a device's, `nvlink.link_bandwidth` that of
the level of this name. A number that was derived from others is not derived again, as with a file that has a `base`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.errors import InputError, UsageError, nearest
from meshcast.hardware import loader
from meshcast.hardware.checked import DATA_SHEET
from meshcast.hardware.cluster import Cluster, NetworkLevel
from meshcast.hardware.device import Device
from meshcast.hardware.document import Document
from meshcast.units import Dimension, parse

MARK = "+"
_FORM = re.compile(r"(?P<base>[^+=]+)(?P<changes>(?:\+[A-Za-z0-9_.-]+=[^+=]+)+)")
_LEVEL = {"link_bandwidth": Dimension.BANDWIDTH, "latency": Dimension.TIME}
FLAG = "--on"
EXAMPLE = "write such as dgx-h100+memory.bandwidth=6.7TB/s+infiniband.link_bandwidth=100GB/s"


def split(text: str) -> tuple[str, dict[str, str]]:
    """What hardware starts from, and what is changed of it; nothing where the text is a name or an existing file.

    Raises:
        UsageError: A key is changed twice.
    """
    found = _FORM.fullmatch(text)
    if found is None or Path(text).exists():
        return text, {}
    changes: dict[str, str] = {}
    for item in found["changes"].split(MARK)[1:]:
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
    levels = {level.name: level for level in cluster.levels}
    of_device: dict[str, str] = {}
    for key, value in changes.items():
        table, _, name = key.partition(".")
        if table in levels:
            levels[table] = _level(levels[table], name, value, key)
        else:
            of_device[key] = value
    device = _device(cluster.device, of_device, read_device()) if of_device else cluster.device
    return replace(cluster, device=device, levels=tuple(levels.values()))


def _level(level: NetworkLevel, name: str, value: str, key: str) -> NetworkLevel:
    if name not in _LEVEL:
        raise UsageError(f"no number {key!r} to change", where=FLAG, fix=nearest(name, _LEVEL))
    try:
        number = parse(value, _LEVEL[name])
    except InputError as error:
        raise UsageError(f"{key}: {error.message}", where=FLAG, fix=EXAMPLE) from None
    if number <= 0:
        raise UsageError(f"{key}={value} is not above 0", where=FLAG, fix=EXAMPLE)
    return replace(level, **{{"latency": "latency_s"}.get(name, name): number})  # type: ignore[arg-type]


def _device(device: Device, changes: Mapping[str, str], document: Document) -> Device:
    own: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in device.facts:
            numbers = [*device.facts]
            raise UsageError(f"{device.name} has no number {key!r}", where=FLAG, fix=nearest(key, numbers))
        *tables, last = key.split(".")
        inner = own
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = {"value": value, "source": "user"}
    # A device's name may become that of a file.
    said = "".join(f"{MARK}{key}={value.replace('/', 'p')}" for key, value in changes.items())
    merged = loader.merged(document, {**own, "name": device.name + said, "aliases": []})
    try:
        return replace(loader.device(merged), checked=DATA_SHEET)  # nobody has such a device
    except InputError as error:
        raise UsageError(error.message, where=FLAG, fix=EXAMPLE) from None
