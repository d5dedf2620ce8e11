"""What a collective sends over each level of a network, whatever algorithm carries it out.

With `m` members of the group in each part below a level and `M` in each of its domains, a reduce-scatter or all-gather
of S bytes moves at least `S * (1 / m - 1 / M)` bytes through each device's port of the level, an all-reduce twice that; an
all-to-all `S / n * (M - m)`; a permutation and a broadcast S over the outermost level they reach (`network.collective`).
"""

from __future__ import annotations

from meshcast.hardware import Cluster, NetworkLevel
from meshcast.network.spread import spread_over_levels
from meshcast.workload.graph import Collective


def level_bytes(collective: Collective, cluster: Cluster) -> tuple[tuple[NetworkLevel, float], ...]:
    """Bytes that one device sends at each level of the cluster that the collective's groups span, innermost first."""
    spread = spread_over_levels(collective.group, cluster)
    size = float(collective.payload_bytes)
    if collective.kind in ("collective_permute", "collective_broadcast"):
        return ((spread[-1].level, size),) if spread else ()
    if collective.kind == "all_to_all":
        return tuple((at.level, size / collective.group.size * (at.within - at.below)) for at in spread)
    times = 2.0 if collective.kind in ("all_reduce", "collective_reduce") else 1.0
    return tuple((at.level, times * size * (1 / at.below - 1 / at.within)) for at in spread)
