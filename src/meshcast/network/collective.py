"""Times of collectives in closed form: `alpha * steps + bytes / bandwidth` per level, ring or direct.

Let a group have `m` members in each domain below level l and `M` in each domain of level l (`m = 1` at the innermost),
and the whole buffer S bytes. A pipelined hierarchical all-gather or reduce-scatter moves `S * (1 / m - 1 / M)` bytes
through each device's port of level l; the slowest level bounds it. An all-reduce is a reduce-scatter and an all-gather.
An all-to-all sends `S / n` to every other member directly, a permutation all of S to one, which the slowest pair
bounds. A broadcast is pipelined down a tree. Steps cost latency: one fewer than there are parts on a ring, one (plus a
little for each peer) where every pair is connected. After Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH" (2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.errors import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.spread import LevelSpread, spread_over_levels
from meshcast.workload.graph import Collective

# What one more message costs its sender beside the wire. An assumption, not a measurement: one queue posting about ten
# million messages a second. The committed measurements cannot tell: where latency counts, none has more than 8 parts
# at a level. It only keeps a direct exchange from being free of its number of peers, and equals the latency of a level
# again at 6 (NVLink) to 27 (InfiniBand) of them.
POST_S = 0.1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """A collective's time, the algorithm chosen, and what bounds it."""

    seconds: float
    algorithm: str
    bandwidth_s: float
    latency_s: float
    level: str


def collective_time(collective: Collective, cluster: Cluster) -> CollectiveTime:
    """Seconds of one collective on its own, with the faster of ring and direct."""
    spread = spread_over_levels(collective.group, cluster)
    if not spread:
        return CollectiveTime(seconds=0.0, algorithm="none", bandwidth_s=0.0, latency_s=0.0, level="none")
    kind = collective.kind
    size = float(collective.payload_bytes)
    if kind == "collective_permute":
        level = spread[-1].level
        return _answer(size / _port(level, 2), level.latency_s, "direct", level)
    if kind == "collective_broadcast":
        slowest = max((at.level for at in spread), key=lambda level: size / _port(level, 2))
        latency = sum(math.ceil(math.log2(at.parts)) * at.level.latency_s for at in spread)
        return _answer(size / _port(slowest, 2), latency, "tree", slowest)
    if kind == "all_to_all":
        return _all_to_all(size / collective.group.size, spread)
    phases = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "collective_reduce": 2}.get(kind)
    if phases is None:
        raise UnsupportedError(f"no algorithm is known for the collective {kind}")
    bandwidth, slowest = _hierarchical(size, spread)
    ring = sum(_ring_latency(at.level, at.parts) for at in spread)
    direct = sum(_direct_latency(at.level, at.parts) for at in spread)
    latency, algorithm = min((ring, "ring"), (direct, "direct"))
    return _answer(phases * bandwidth, phases * latency, algorithm, slowest)


def _answer(bandwidth: float, latency: float, algorithm: str, level: NetworkLevel) -> CollectiveTime:
    return CollectiveTime(
        seconds=bandwidth + latency, algorithm=algorithm, bandwidth_s=bandwidth, latency_s=latency, level=level.name
    )


def _hierarchical(size: float, spread: tuple[LevelSpread, ...]) -> tuple[float, NetworkLevel]:
    times = [(size * (1 / at.below - 1 / at.within) / _port(at.level, at.parts), at.level) for at in spread]
    return max(times, key=lambda time: time[0])


def _all_to_all(message: float, spread: tuple[LevelSpread, ...]) -> CollectiveTime:
    """Every member sends `message = S / n` bytes to every other.

    To the members of its domain that lie outside its own part a device sends `message * (M - m)` through its port. On a
    ring or torus messages also pass through the links of others. With the shortest routes, one dimension after the
    other, a device's `message * M` bytes make `h_d` hops each along dimension d on average, and every device has
    `links_d` links there (half of them either way), so each carries `message * M * h_d / links_d`. On a ring of k,

        h = floor(k^2 / 4) / k        (k / 4 for even k)

    and the time of the longest dimension, `message * M * k / 8` over a link's rate with two links, is the bound by
    bisection: half of the n members send half of S across a cut of `2 n / k` links. After Dally and Towles, "Principles
    and Practices of Interconnection Networks" (2004), chapters 3 and 5.
    """
    times = []
    for at in spread:
        seconds = message * (at.within - at.below) / _port(at.level, at.parts)
        for side in _sides(at.level, at.parts):
            rate = _links_along(at.level, side) * at.level.link_bandwidth
            seconds = max(seconds, message * at.within * _mean_hops(side) / rate)
        times.append((seconds, at.level))
    worst, slowest = max(times, key=lambda time: time[0])
    latency = sum(_direct_latency(at.level, at.parts) for at in spread)
    return _answer(worst, latency, "direct", slowest)


def _port(level: NetworkLevel, parts: int) -> float:
    """bytes/s one device can send towards `parts` others at a level."""
    if level.topology == "switch":
        return level.bandwidth
    if level.topology == "full":
        return level.link_bandwidth * min(level.links, max(1, parts - 1))
    if parts <= 2:
        return level.link_bandwidth
    if level.topology == "ring":
        return level.bandwidth  # more than two links a device: several rings side by side
    return level.link_bandwidth * min(level.links, 2 * _torus_dims(level, parts))


def _torus_dims(level: NetworkLevel, parts: int) -> int:
    """Torus dimensions a group of this size spans when it is laid out densely."""
    spanned, room = 0, 1
    for extent in level.dims or (parts,):
        spanned += 1
        room *= extent
        if room >= parts:
            break
    return spanned


def _sides(level: NetworkLevel, parts: int) -> tuple[float, ...]:
    """Lengths of a group along the dimensions it spans, as even as the torus allows; no dimensions without one.

    A group that fills the torus has its shape. All sides are taken to be closed by wrap-around links.
    """
    if level.topology == "ring":
        return (float(parts),)
    if level.topology != "torus":
        return ()
    extents = sorted((level.dims or (parts,))[: _torus_dims(level, parts)])
    sides: list[float] = []
    left = float(parts)
    for position, extent in enumerate(extents):
        sides.append(min(float(extent), round(left ** (1 / (len(extents) - position)), 9)))
        left /= sides[-1]
    return tuple(sides)


def _links_along(level: NetworkLevel, side: float) -> float:
    """Links of a device along one dimension, both ways; between two devices there is one."""
    return max(1.0, level.links / max(1, len(level.dims))) if side > 2 else 1.0


def _mean_hops(side: float) -> float:
    """Mean distance from a device of a ring to all of its devices, itself included."""
    return math.floor(side * side / 4) / side if side.is_integer() else side / 4


def _ring_latency(level: NetworkLevel, parts: int) -> float:
    if level.topology == "torus":
        return sum(max(1.0, side / 2) for side in _sides(level, parts)) * level.latency_s
    return (parts - 1) * level.latency_s


def _direct_latency(level: NetworkLevel, parts: int) -> float:
    if level.topology in ("ring", "torus"):
        return _ring_latency(level, parts)
    return level.latency_s + (parts - 1) * POST_S
