"""What one device can send at a level towards a number of parts: ports of switches, links of rings and tori."""

from __future__ import annotations

import math

from meshcast.hardware import NetworkLevel


def port(level: NetworkLevel, parts: int) -> float:
    """bytes/s that one device can send towards `parts` others at a level, on the wire."""
    if level.switched:
        return level.bandwidth
    if level.topology == "full":
        return level.link_bandwidth * min(level.links, max(1, parts - 1))
    if parts <= 2:
        return level.link_bandwidth
    if level.topology == "ring":
        return level.bandwidth  # more than two links a device: several rings side by side
    return level.link_bandwidth * min(level.links, sum(links_along(level, side) for side in sides(level, parts)))


def torus_dims(level: NetworkLevel, parts: int) -> int:
    """Torus dimensions a group of this size spans when it is laid out densely."""
    spanned, room = 0, 1
    for extent in level.dims or (parts,):
        spanned += 1
        room *= extent
        if room >= parts:
            break
    return spanned


def sides(level: NetworkLevel, parts: int) -> tuple[float, ...]:
    """Lengths of a group along the dimensions it spans, as even as the torus allows; no dimensions without one.

    A group that fills the torus has its shape. All sides are taken to be closed by wrap-around links.
    """
    if level.topology == "ring":
        return (float(parts),)
    if level.topology != "torus":
        return ()
    extents = sorted((level.dims or (parts,))[: torus_dims(level, parts)])
    found: list[float] = []
    left = float(parts)
    for position, extent in enumerate(extents):
        found.append(min(float(extent), round(left ** (1 / (len(extents) - position)), 9)))
        left /= found[-1]
    return tuple(found)


def wraps(level: NetworkLevel, parts: int) -> bool:
    """Whether a group spans several dimensions of a torus, each closed into a ring.

    Three-dimensional tori are made of blocks of 4x4x4 chips whose faces optical switches close; two-dimensional ones
    have links around an axis of full length only (Jouppi et al., ISCA 2023, and the Cloud TPU documentation).
    """
    found = sides(level, parts)
    if level.topology != "torus" or len(found) < 2:
        return False
    if len(level.dims) >= 3:
        return all(side % 4 == 0 for side in found)
    return all(side == extent > 2 for side, extent in zip(found, sorted(level.dims), strict=True))


def links_along(level: NetworkLevel, side: float) -> float:
    """Links of a device along one dimension, both ways; between two devices there is one."""
    return max(1.0, level.links / max(1, len(level.dims))) if side > 2 else 1.0


def mean_hops(side: float) -> float:
    """Mean distance from a device of a ring to all of its devices, itself included."""
    return math.floor(side * side / 4) / side if side.is_integer() else side / 4


def farthest_hops(level: NetworkLevel, parts: int) -> int:
    """Hops to the device that is farthest: one through a switch, half of every side around a torus."""
    return max(1, sum(max(1, int(side // 2)) for side in sides(level, parts) if side > 1))
