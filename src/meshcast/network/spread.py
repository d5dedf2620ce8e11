"""How the groups of a collective spread over the levels of a cluster: members inside a node, nodes inside a pod, ..."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshcast.hardware import Cluster, NetworkLevel
from meshcast.mesh import Group

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpread:
    """What a level has to connect, at its worst over all groups of a collective.

    Attributes:
        level: The network level.
        parts: Most domains of the level below (devices, at the innermost) that members of a group lie in.
        below: Fewest members of a group in one of these: they share the traffic with the others among them.
        within: Most members of a group in one domain of this level.

    In a group that fills its domains evenly, `within = parts * below`.
    """

    level: NetworkLevel
    parts: int
    below: int
    within: int


def spread_over_levels(group: Group, cluster: Cluster) -> tuple[LevelSpread, ...]:
    """The levels that any group of a collective communicates over, innermost first.

    Devices are placed densely: ids 0..size-1 share the first domain of a level. The groups of one collective can lie
    differently in their domains, as in groups of 6 on nodes of 8: {0..5} is inside a node, {6..11} is not. All run at
    once and the slowest counts, so each level has the worst of them. The outermost level is taken to hold all devices.
    """
    inner = tuple(level.size for level in cluster.levels[:-1])
    return _at_levels(_spread(group, inner) if cluster.levels else (), cluster)


def spread_of_devices(rows: Sequence[Ints], cluster: Cluster) -> tuple[LevelSpread, ...]:
    """The same for groups whose devices are listed, as a placement puts them."""
    inner = tuple(level.size for level in cluster.levels[:-1])
    return _at_levels(_worst(rows, inner) if cluster.levels else (), cluster)


def _at_levels(found: Iterable[tuple[int, int, int]], cluster: Cluster) -> tuple[LevelSpread, ...]:
    return tuple(
        LevelSpread(level=level, parts=parts, below=below, within=within)
        for level, (parts, below, within) in zip(cluster.levels, found, strict=True)
        if parts > 1
    )


@functools.lru_cache(maxsize=4096)
def _spread(group: Group, inner: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """(parts, below, within) of the levels whose domains have these sizes, and of one around them all.

    Groups that are shifted by a multiple of every domain's size lie alike. One of each kind is looked at, at most as
    many ids as there are devices.
    """
    if group.table:
        return _worst(group.rows(), inner)
    starts = group.starts()
    _, kinds = np.unique(starts % math.lcm(*inner), return_index=True)
    return _worst(list(starts[kinds, None] + group.offsets()), inner)


def _worst(groups: Sequence[Ints], inner: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """(parts, below, within) over all groups."""
    ids = np.concatenate(groups)
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    part = np.arange(ids.size)  # a member of each part: at first every member is one
    counts = np.ones(ids.size, dtype=np.int64)
    found: list[tuple[int, int, int]] = []
    for domains in (*(ids // size for size in inner), np.zeros_like(ids)):
        places = rows[part] * (int(domains.max()) + 1) + domains[part]
        _, first, domain, parts = np.unique(places, return_index=True, return_inverse=True, return_counts=True)
        within = np.bincount(domain, weights=counts).astype(np.int64)
        joined = parts > 1
        if joined.any():
            found.append((int(parts.max()), int(counts[joined[domain]].min()), int(within[joined].max())))
        else:
            found.append((1, 1, 1))
        part, counts = part[first], within
    return tuple(found)
