"""How a group of devices spreads over the levels of a cluster: members inside a node, nodes inside a pod, ..."""

from __future__ import annotations

import functools

import numpy as np

from meshcast.hardware import Cluster, NetworkLevel
from meshcast.mesh import Group


@functools.lru_cache(maxsize=4096)
def members_per_level(group: Group, cluster: Cluster) -> tuple[tuple[NetworkLevel, int], ...]:
    """(level, n): at each level the group has n parts to connect, innermost first; the product is the group's size.

    Devices are placed densely: ids 0..size-1 share the first domain of a level.
    """
    parts = group.offsets()
    spread: list[tuple[NetworkLevel, int]] = []
    for level in cluster.levels:
        if parts.size == 1:
            break
        domains = np.unique(group.offsets() // level.size)
        inside = -(-parts.size // domains.size)
        if inside > 1:
            spread.append((level, int(inside)))
        parts = domains
    if parts.size > 1 and cluster.levels:
        # More parts than the outermost level's domain holds: `Cluster.for_devices` refuses such counts beforehand.
        spread.append((cluster.levels[-1], int(parts.size)))
    return tuple(spread)
