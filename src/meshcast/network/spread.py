"""How the groups of a collective spread over the levels of a cluster: members inside a node, nodes inside a pod, ..."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshcast.base import Group, KeptBeside
from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.leaves import leaving
from meshcast.network.slices import SliceLine, lines_in_slice

Ints = NDArray[np.int64]
Counts = tuple[int, int, int, int]  # parts, fewest, below and within of a level


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpread:
    """What a level has to connect, at its worst over all groups of a collective.

    Attributes:
        level: The network level.
        parts: Most domains of the level below (devices, at the innermost) that members of a group lie in.
        fewest: The smallest number of them in a domain in which a group has several.
        below: Fewest members of a group in one of these: they share the traffic with the others among them.
        within: Most members of a group in one domain of this level.
        lines: On rings and tori, how a group lies along the sides of its slice.
        leaving: On a fat tree with less upwards than downwards, how many messages go through a device's share of the
            way out of its leaf when each device sends one to every other of its group.

    In a group that fills its domains evenly, `within = parts * below`.
    """

    level: NetworkLevel
    parts: int
    fewest: int
    below: int
    within: int
    lines: tuple[SliceLine, ...] = ()
    leaving: float = 0.0


def spread_over_levels(group: Group, cluster: Cluster) -> tuple[LevelSpread, ...]:
    """The levels that any group of a collective communicates over, innermost first.

    Devices are placed densely: ids 0..size-1 share the first domain of a level. The groups of one collective can lie
    differently in their domains, as in groups of 6 on nodes of 8: {0..5} is inside a node, {6..11} is not. All run at
    once and the slowest counts, so each level has the worst of them. The outermost level is taken to hold all devices.
    """
    return _found(group, cluster.levels) if cluster.levels else ()


def spread_of_devices(rows: Sequence[Ints], cluster: Cluster) -> tuple[LevelSpread, ...]:
    """The spread of groups whose devices are listed, as a placement puts them."""
    if not cluster.levels:
        return ()
    counts = _worst(rows, tuple(level.size for level in cluster.levels[:-1]))
    return _at_levels(counts, cluster.levels, list(rows), 1 + max(int(row.max()) for row in rows))


def lying_apart(groups: tuple[Group, ...], levels: tuple[NetworkLevel, ...]) -> tuple[Group, ...]:
    """The first of each way in which some groups lie in these levels: the spread of any other is that of one of these.

    Sizes of domains decide it where it does not matter where in them members lie, so that all rates share the answer.
    """
    if not levels or any(_has_places(level) for level in levels):
        return groups
    inner = tuple(level.size for level in levels[:-1])
    return _APART.of(groups, inner, lambda: _first_of_each(groups, inner))


_APART: KeptBeside[tuple[Group, ...]] = KeptBeside(4096)


def _first_of_each(groups: tuple[Group, ...], inner: tuple[int, ...]) -> tuple[Group, ...]:
    found: dict[tuple[Counts, ...], Group] = {}
    for group in groups:
        found.setdefault(_spread(group, inner), group)
    return tuple(found.values())


@functools.lru_cache(maxsize=4096)
def _found(group: Group, levels: tuple[NetworkLevel, ...]) -> tuple[LevelSpread, ...]:
    counts = _spread(group, tuple(level.size for level in levels[:-1]))
    sizes = [level.size for level, count in zip(levels, counts, strict=True) if count[0] > 1 and _has_places(level)]
    rows = _first_rows(group, max(sizes)) if sizes else []
    devices = max([group.devices, *(int(row.max()) + 1 for row in rows)])
    return _at_levels(counts, levels, rows, devices)


def _first_rows(group: Group, size: int) -> list[Ints]:
    """The groups that start among the first `size` devices: all others lie like one of these."""
    if group.table:
        return group.rows()
    starts = group.starts()
    return list(starts[starts < max(size, group.first + 1), None] + group.offsets())


def _has_places(level: NetworkLevel) -> bool:
    """Whether it matters at a level where the members of its parts lie, not only how many there are."""
    return level.topology in ("ring", "torus") or (level.topology == "fat-tree" and level.taper > 1)


def _at_levels(
    counts: Iterable[Counts], levels: tuple[NetworkLevel, ...], rows: list[Ints], devices: int
) -> tuple[LevelSpread, ...]:
    found: list[LevelSpread] = []
    inner = 1
    for index, (level, (parts, fewest, below, within)) in enumerate(zip(levels, counts, strict=True)):
        if parts > 1:
            sets = _sets(rows, level.size, last=index == len(levels) - 1) if _has_places(level) else []
            hops = level.topology in ("ring", "torus")
            found.append(
                LevelSpread(
                    level=level,
                    parts=parts,
                    fewest=fewest,
                    below=below,
                    within=within,
                    lines=lines_in_slice(level, sets, inner, devices) if hops else (),
                    leaving=leaving(level, sets, inner=inner, devices=devices) if sets and not hops else 0.0,
                )
            )
        inner = level.size
    return tuple(found)


def _sets(rows: list[Ints], size: int, *, last: bool) -> list[Ints]:
    """The members of every group, by the domains of a level that they lie in."""
    if last:
        return rows
    ordered = [np.sort(row) for row in rows]
    return [part for row in ordered for part in np.split(row, np.flatnonzero(np.diff(row // size)) + 1)]


@functools.lru_cache(maxsize=4096)
def _spread(group: Group, inner: tuple[int, ...]) -> tuple[Counts, ...]:
    """(parts, fewest, below, within) of the levels whose domains have these sizes, and of one around them all.

    Groups that are shifted by a multiple of every domain's size lie alike. One of each kind is looked at, at most as
    many ids as there are devices.
    """
    if group.table:
        return _worst(group.rows(), inner)
    starts = group.starts()
    _, kinds = np.unique(starts % math.lcm(*inner), return_index=True)
    return _worst(list(starts[kinds, None] + group.offsets()), inner)


def _worst(groups: Sequence[Ints], inner: tuple[int, ...]) -> tuple[Counts, ...]:
    """(parts, fewest, below, within) over all groups."""
    ids = np.concatenate(groups)
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    part = np.arange(ids.size)  # a member of each part: at first every member is one
    counts = np.ones(ids.size, dtype=np.int64)
    found: list[Counts] = []
    for domains in (*(ids // size for size in inner), np.zeros_like(ids)):
        places = rows[part] * (int(domains.max()) + 1) + domains[part]
        _, first, domain, parts = np.unique(places, return_index=True, return_inverse=True, return_counts=True)
        within = np.bincount(domain, weights=counts).astype(np.int64)
        joined = parts > 1
        if joined.any():
            several = parts[joined]
            below = counts[joined[domain]].min()
            found.append((int(several.max()), int(several.min()), int(below), int(within[joined].max())))
        else:
            found.append((1, 1, 1, 1))
        part, counts = part[first], within
    return tuple(found)
