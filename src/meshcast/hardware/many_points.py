"""Hardware of several points of a sweep as one: a column wherever a number is not the same at all of them (`base.column`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from meshcast.base import NumberColumn, mapped, merged, structure
from meshcast.hardware.cluster import Cluster, NetworkLevel
from meshcast.hardware.device import Device

K = TypeVar("K")
V = TypeVar("V")
# What says which hardware it is, and nothing of how fast: it is that of the first point.
_TOLD = frozenset({"name", "title", "facts", "sources", "notes", "checked", "bases", "aliases"})
# Whole numbers of a device that are counted with and nothing else: how many cores there are, and how many collectives hold.
_COUNTED = frozenset({"cores", "in_network_cores"})
MOST = 256
_LEVELS: OrderedDict[int, tuple[NetworkLevel, int]] = OrderedDict()  # those with columns, and of how many points
_DEVICES: OrderedDict[int, tuple[Device, tuple[Device, ...]]] = OrderedDict()  # by what stands for all, which it holds


def several(clusters: Sequence[Cluster]) -> Cluster:
    """One cluster for those of several points.

    Raises:
        NotAlikeError: They differ in something else than numbers, or in numbers that are whole ones.
    """
    device = _standing_for(tuple(cluster.device for cluster in clusters))
    alone = [replace(cluster, device=device, facts={}, sources={}) for cluster in clusters]
    found = merged(alone, _TOLD.__contains__)
    _note_levels(found.levels)
    return found


def alike_in_kind(clusters: Sequence[Cluster]) -> list[list[int]]:
    """The places of clusters that `several` puts into one: those that differ in numbers alone, whole ones but for some aside."""
    groups: dict[Hashable, list[int]] = {}
    for place, cluster in enumerate(clusters):
        plain = replace(cluster, facts={}, sources={})
        groups.setdefault(structure(plain, _TOLD.__contains__, _COUNTED.__contains__), []).append(place)
    return list(groups.values())


def _standing_for(devices: tuple[Device, ...]) -> Device:
    device = merged(devices, _TOLD.__contains__, _COUNTED.__contains__)
    if device is not devices[0]:
        _noted(_DEVICES, device, devices)
    return device


def devices_of(device: Device) -> tuple[Device, ...] | None:
    """The device of each point, of one that stands for several; None of one that is itself."""
    found = _DEVICES.get(id(device))
    return found[1] if found is not None else None


def device_at(device: Device, places: npt.NDArray[np.int64]) -> Device:
    """The device of some of the points of one that stands for all; one device where theirs is the same."""
    whole = devices_of(device)
    return _standing_for(tuple(whole[place] for place in places.tolist())) if whole is not None else device


def hardware_at(cluster: Cluster, places: npt.NDArray[np.int64]) -> Cluster:
    """The hardware of some of the points of a cluster that stands for all."""
    device = device_at(cluster.device, places)

    def here(column: NumberColumn) -> object:
        values = column.values[places]
        return float(values[0]) if (values == values[0]).all() else NumberColumn(values)

    levels = tuple(mapped(level, here) if id(level) in _LEVELS else level for level in cluster.levels)
    _note_levels(levels)
    return replace(cluster, device=device, levels=levels)


def _note_levels(levels: Sequence[NetworkLevel]) -> None:
    for level in levels:
        if id(level) in _LEVELS:
            continue
        found: list[int] = []

        def counted(column: NumberColumn, found: list[int] = found) -> NumberColumn:
            found.append(len(column.values))
            return column

        mapped(level, counted)
        if found:
            _noted(_LEVELS, level, found[0])


def _noted(known: OrderedDict[int, tuple[K, V]], thing: K, what: V) -> None:
    known[id(thing)] = thing, what
    while len(known) > MOST:
        known.popitem(last=False)


def points_of(device: Device, levels: Sequence[NetworkLevel]) -> int | None:
    """How many points hardware stands for; None where it is that of one."""
    devices = devices_of(device)
    if devices is not None:
        return len(devices)
    return next((_LEVELS[id(level)][1] for level in levels if id(level) in _LEVELS), None)
