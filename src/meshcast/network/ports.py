"""What one device can send at a level, to its neighbours and to all others: ports of switches, links of rings and tori."""

from __future__ import annotations

from meshcast.hardware import NetworkLevel
from meshcast.network.slices import SliceLine
from meshcast.network.spread import LevelSpread


def has_hops(level: NetworkLevel) -> bool:
    """Whether devices pass on what is not for them: links lead to neighbours only."""
    return level.topology in ("ring", "torus")


def port(at: LevelSpread) -> float:
    """bytes/s that the member of a group with the fewest links can send at a level, on the wire, to all others.

    On a slice that is not closed that is a corner: one link a side, where others have two. What a corner has to get
    bounds every collective, and rings along all sides reach it. Groups that interleave share their links.
    """
    level = at.level
    if level.switched:
        return level.bandwidth
    if level.topology == "full":
        return level.link_bandwidth * min(level.links, at.fewest - 1)
    return sum(line.free_ways * lane(level, line) for line in at.lines)


def pair(at: LevelSpread) -> float:
    """bytes/s that one device can send to one other at a level, on the wire, while all others do the same."""
    level = at.level
    if level.switched:
        return level.bandwidth
    if level.topology == "full":
        return level.link_bandwidth
    # To the opposite member of a ring both ways are equally long, and half takes each.
    ways = min((line.ways if line.length == 2 else 1) / line.shared for line in at.lines)
    return level.link_bandwidth * ways


def lane(level: NetworkLevel, line: SliceLine) -> float:
    """bytes/s of a device one way along a side; between two neighbours there is one link."""
    if level.links == 1 or line.length * line.spacing == 2:
        return level.link_bandwidth
    return level.link_bandwidth * max(1.0, level.links / (2 * max(1, len(level.dims))))


def exchange_s(at: LevelSpread) -> float:
    """Seconds on the wire in which every member sends a byte to every other that lies outside its own part.

    To the members of its domain that lie outside its own part a device sends `M - m` bytes through its port. On a ring or
    torus they also pass through the links of others: with the shortest routes, one side after the other, each member sends
    M bytes along every side, evenly to all on the line (`Line.crossing`). On a fat tree they share the way out of a leaf.
    After Dally and Towles, "Principles and Practices of Interconnection Networks" (2004), chapters 3 and 5.
    """
    level = at.level
    outside = at.within - at.below
    if level.topology == "full":  # every pair has a link of its own
        return outside / (level.link_bandwidth * min(level.links, at.parts - 1))
    crossing = max((at.within * line.crossing / lane(level, line) for line in at.lines), default=0.0)
    return max(outside / port(at), at.leaving / level.bandwidth, crossing)


def wraps(at: LevelSpread) -> bool:
    """Whether a group spans several sides of a torus, each closed into a ring."""
    return len(at.lines) > 1 and all(line.closed and line.ways == 2 for line in at.lines)


def farthest_hops(at: LevelSpread) -> int:
    """Hops to the member that is farthest: one through a switch."""
    return max(1, sum(line.farthest for line in at.lines))
