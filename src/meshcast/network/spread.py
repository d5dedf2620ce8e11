"""How a group of devices spreads over the levels of a cluster: members inside a node, nodes inside a pod, ..."""

from __future__ import annotations

import functools

import numpy as np

from meshcast.hardware import Cluster, NetworkLevel
from meshcast.mesh import Group


def members_per_level(group: Group, cluster: Cluster) -> tuple[tuple[NetworkLevel, int], ...]:
    """(level, n): at each level the group has n parts to connect, innermost first; the product is the group's size.

    Devices are placed densely: ids 0..size-1 share the first domain of a level. The group that holds device 0 stands
    for all; one that fills its domains unevenly has their mean, rounded up.
    """
    levels = cluster.levels
    counts = _parts(group.dims, tuple(level.size for level in levels))
    return tuple((level, count) for level, count in zip(levels, counts, strict=True) if count > 1)


@functools.lru_cache(maxsize=4096)
def _parts(dims: tuple[tuple[int, int], ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Parts to connect at each level; 1 where a level has nothing to do."""
    parts = ids = Group(dims=dims).offsets()
    counts: list[int] = []
    for size in sizes:
        domains = np.unique(ids // size)
        counts.append(-(-parts.size // domains.size))
        parts = domains
    if parts.size > 1 and counts:
        # More parts than the outermost domain holds: `Cluster.for_devices` refuses such counts beforehand.
        counts[-1] *= parts.size
    return tuple(counts)
