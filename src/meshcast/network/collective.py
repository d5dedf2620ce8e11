"""Times of collectives in closed form: `alpha * steps + bytes / bandwidth` per level, ring or direct.

For a group with `n_l` parts at level l (innermost 0) and a whole buffer of S bytes, a pipelined hierarchical all-gather
or reduce-scatter moves `S / (n_0 ... n_{l-1}) * (n_l - 1) / n_l` bytes through each device's port of level l; the
slowest level bounds it. An all-reduce is a reduce-scatter and an all-gather. An all-to-all sends `S / n` to every other
member directly, a permutation all of S to one. A broadcast is pipelined down a tree. Steps cost latency: `n_l - 1` per
level on a ring, one (plus a little for each peer) where every pair is connected. After Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH" (2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.errors import UnsupportedError
from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.spread import members_per_level
from meshcast.workload.graph import Collective

# What posting one more message costs its sender, beside the wire: the order of a NIC doorbell or an NVLink flag.
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
    spread = members_per_level(collective.group, cluster)
    if not spread:
        return CollectiveTime(seconds=0.0, algorithm="none", bandwidth_s=0.0, latency_s=0.0, level="none")
    kind = collective.kind
    size = float(collective.payload_bytes)
    if kind == "collective_permute":
        level = spread[-1][0]
        return _answer(size / _port(level, 2), level.latency_s, "direct", level)
    if kind == "collective_broadcast":
        slowest = max((level for level, _ in spread), key=lambda level: size / _port(level, 2))
        latency = sum(math.ceil(math.log2(parts)) * level.latency_s for level, parts in spread)
        return _answer(size / _port(slowest, 2), latency, "tree", slowest)
    if kind == "all_to_all":
        return _all_to_all(size, spread)
    phases = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "collective_reduce": 2}.get(kind)
    if phases is None:
        raise UnsupportedError(f"no algorithm is known for the collective {kind}")
    bandwidth, slowest = _hierarchical(size, spread)
    ring = sum(_ring_latency(level, parts) for level, parts in spread)
    direct = sum(_direct_latency(level, parts) for level, parts in spread)
    latency, algorithm = min((ring, "ring"), (direct, "direct"))
    return _answer(phases * bandwidth, phases * latency, algorithm, slowest)


def _answer(bandwidth: float, latency: float, algorithm: str, level: NetworkLevel) -> CollectiveTime:
    return CollectiveTime(
        seconds=bandwidth + latency, algorithm=algorithm, bandwidth_s=bandwidth, latency_s=latency, level=level.name
    )


def _hierarchical(size: float, spread: tuple[tuple[NetworkLevel, int], ...]) -> tuple[float, NetworkLevel]:
    worst, slowest = 0.0, spread[0][0]
    share = size
    for level, parts in spread:
        seconds = share * (parts - 1) / parts / _port(level, parts)
        if seconds > worst:
            worst, slowest = seconds, level
        share /= parts
    return worst, slowest


def _all_to_all(size: float, spread: tuple[tuple[NetworkLevel, int], ...]) -> CollectiveTime:
    """Level l carries what leaves the `m` members below it but not the level itself: `S * m * (n_l - 1) / n`."""
    members = math.prod(parts for _, parts in spread)
    worst, slowest = 0.0, spread[0][0]
    inside = 1
    for level, parts in spread:
        leaving = size * inside * (parts - 1) / members
        seconds = leaving / _port(level, parts)
        if level.topology == "torus":
            seconds *= max(1.0, _mean_hops(level, parts) / 2)  # messages pass through neighbours' links
        if seconds > worst:
            worst, slowest = seconds, level
        inside *= parts
    latency = sum(_direct_latency(level, parts) for level, parts in spread)
    return _answer(worst, latency, "direct", slowest)


def _port(level: NetworkLevel, parts: int) -> float:
    """bytes/s one device can send towards `parts` others at a level."""
    if level.topology == "switch":
        return level.bandwidth
    if level.topology == "full":
        return level.link_bandwidth * min(level.links, max(1, parts - 1))
    if level.topology == "ring":
        return level.link_bandwidth * min(level.links, 2 if parts > 2 else 1)
    return level.link_bandwidth * min(level.links, 2 * _torus_dims(level, parts) if parts > 2 else 1)


def _torus_dims(level: NetworkLevel, parts: int) -> int:
    """Torus dimensions a group of this size spans when it is laid out densely."""
    spanned, room = 0, 1
    for extent in level.dims or (parts,):
        spanned += 1
        room *= extent
        if room >= parts:
            break
    return spanned


def _mean_hops(level: NetworkLevel, parts: int) -> float:
    dims = _torus_dims(level, parts)
    return dims * float(parts ** (1 / dims)) / 4


def _ring_latency(level: NetworkLevel, parts: int) -> float:
    if level.topology == "torus":
        dims = _torus_dims(level, parts)
        return dims * max(1.0, float(parts ** (1 / dims)) / 2) * level.latency_s
    return (parts - 1) * level.latency_s


def _direct_latency(level: NetworkLevel, parts: int) -> float:
    if level.topology in ("ring", "torus"):
        return _ring_latency(level, parts)
    return level.latency_s + (parts - 1) * POST_S
