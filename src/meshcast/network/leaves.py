"""Switches next to the devices: which devices share one, and what leaves it when all pairs exchange."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshcast.hardware import NetworkLevel

Ints = NDArray[np.int64]


def leaf_keys(level: NetworkLevel, device: Ints, *, inner: int, size: int) -> Ints:
    """A number for each device, equal for those below one leaf of a fat tree.

    Domains hold `size` devices, parts of the level below `inner`. On a rail-optimised tree the devices of a part are dealt
    out over `rails` leaves in turn.
    """
    domain, inside = device // size, device % size
    node, local = inside // inner, inside % inner
    rails = min(level.rails, inner)
    per_node = -(-inner // rails)  # devices of a part on one rail
    ports = level.devices_per_leaf
    position = node * per_node + local // rails
    return (domain * rails + local % rails) * (-(-size // ports) + 1) + position // ports


def leaving(level: NetworkLevel, sets: list[Ints], *, inner: int, devices: int) -> float:
    """Messages for which a device's share of its leaf's way out is used, when each sends one to all others of its set.

    A leaf with k ports has a way out for k / oversubscription of them. 0 where switches have as much upwards as
    downwards, and for networks of which that is not the bound.
    """
    if level.topology != "fat-tree" or level.taper <= 1:
        return 0.0
    size = min(level.size, devices)
    sent: dict[int, int] = {}
    for members in sets:
        leaf = np.unique(leaf_keys(level, members, inner=inner, size=size), return_inverse=True)
        part = np.unique(members // inner, return_inverse=True)
        here = np.zeros((len(leaf[0]), len(part[0])), np.int64)  # members by leaf and by part of the level below
        np.add.at(here, (leaf[1], part[1]), 1)
        below = here.sum(axis=1)
        # To members of its own part a device sends over the level below, whatever leaf they are on.
        out = below * (len(members) - below) - (here * (here.sum(axis=0) - here)).sum(axis=1)
        for number, count in zip(leaf[0].tolist(), out.tolist(), strict=True):
            sent[number] = sent.get(number, 0) + count
    return max(sent.values()) * level.taper / level.devices_per_leaf
