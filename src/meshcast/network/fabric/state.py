"""What the links of a fabric can carry in the state they are in: degraded, failed, or partly taken by others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.hardware import Conditions, LinkCondition, NetworkLevel
from meshcast.network.fabric.links import Floats, Ints, Links


def capacities(links: Links, devices: int, levels: Sequence[NetworkLevel], conditions: Conditions) -> Floats:
    """bytes/s of every link. A condition on a device holds for its links of the level, in both directions.

    Where a device has several links at a level and a condition concerns some of them, these are its first ones in the
    order they were made: along the first side of a torus upwards, then downwards, then the next side. Links that lie
    side by side to one neighbour are one row here, whose rate falls in proportion.
    """
    capacity = links.bandwidth.copy()
    for index, level in enumerate(levels):
        here = links.level == index
        capacity[here] *= 1.0 - conditions.background.get(level.name, 0.0)
        for condition in conditions.links:
            if condition.level == level.name:
                _degrade(capacity, links, np.flatnonzero(here), devices, condition)
    return capacity


def _degrade(capacity: Floats, links: Links, rows: Ints, devices: int, condition: LinkCondition) -> None:
    if condition.device is None and condition.links is None:
        capacity[rows] *= condition.share
        return
    concerned_devices = range(devices) if condition.device is None else (condition.device,)
    for ends in (links.source, links.target):
        for device in concerned_devices:
            own = rows[(ends[rows] == device) & (links.bandwidth[rows] > 0)]
            before = np.cumsum(links.lanes[own]) - links.lanes[own]
            wanted = np.inf if condition.links is None else condition.links
            concerned = np.clip(wanted - before, 0, links.lanes[own]) / links.lanes[own]
            capacity[own] *= 1.0 - concerned * (1.0 - condition.share)
