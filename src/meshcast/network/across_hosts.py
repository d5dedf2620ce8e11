"""What crossing hosts does to NCCL's algorithms beyond the wire: posting to cards, plateaus of rings, trees of many hosts.

Every number is one that the library itself reckons with (`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in tuning.cc, the same in
versions 2.18 to 2.29 where not said otherwise):

- A ring's proxy posts every step to the network card, also those that stay inside a host: a step takes at least one post, and
  three with Simple (`getNetOverhead`).
- An all-reduce on a ring with Simple takes `ring_plateau` times the latency of its steps ("plateau effect of ring").
- Trees of many hosts reach 92 % of a ring's rate and 85 % of that (`NCCL_TOPO_PATTERN_TREE`), and less with messages of
  middle sizes (`treeCorrectionFactor`). Three hosts still reach all of it (NCCL's issue 1801: the one in the middle has
  nobody above it). Five hosts of 8 H100 with four 400 Gbit/s cards reach 150 GB/s on trees where rings reach 190 (issue
  1368), eight of 8 V100 with four of 100 Gbit/s 36.8 where rings reach 43.6 (issue 319); 92 % x 85 % of 96 % of the wire is
  150 and 37.5.
- LL goes through the host's memory, which bounds a host's ring: `llMaxBws` of two hosts, and of more.
"""

from __future__ import annotations

import math

from meshcast.network.spread import LevelSpread

# What NCCL reckons that trees reach of a ring's rate, and those of many hosts of that.
TREE_SHARE = 0.92
MANY_HOSTS_SHARE = 0.85
_FEW_HOSTS = 3
# Posts of a step, by protocol; one where it is not named.
_POSTS = {"Simple": 3}
# bytes/s of a ring with LL through hosts: of two of them, and of more (Intel's; AMD's are 22.5 and 19).
_LL_OF_HOSTS = (39e9, 20.4e9)
# Of a tree's rate by size, powers of two from 64 bytes on: `treeCorrectionFactor`.
_MIDDLE_SIZES = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9),
    "Simple": (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}  # fmt: skip


def hosts_of(spread: tuple[LevelSpread, ...]) -> int:
    """How many hosts (or racks) a group lies in: 1 where no link between hosts takes part."""
    return math.prod(at.parts for at in spread if at.level.link.between_hosts)


def posting_s(spread: tuple[LevelSpread, ...], protocol: str) -> float:
    """Seconds that a step of a ring across hosts takes at least, wherever it goes; 0 inside a host."""
    return max((at.level.link.post_s for at in spread if at.level.link.between_hosts), default=0.0) * _POSTS.get(
        protocol, 1
    )


def plateau(spread: tuple[LevelSpread, ...], kind: str, protocol: str) -> float:
    """How many times its steps' latency a ring across hosts takes."""
    if kind != "all_reduce" or protocol != "Simple" or hosts_of(spread) < 2:
        return 1.0
    return max(at.level.link.ring_plateau for at in spread)


def limit_through_hosts(spread: tuple[LevelSpread, ...], protocol: str) -> float:
    """bytes/s that a ring of a group moves at most where its protocol goes through the memory of hosts."""
    hosts = hosts_of(spread)
    if protocol != "LL" or hosts < 2:
        return math.inf
    return _LL_OF_HOSTS[0 if hosts == 2 else 1]


def tree_share(hosts: int) -> float:
    """Of a ring's rate between hosts, what a tree reaches with large messages."""
    return TREE_SHARE * MANY_HOSTS_SHARE if hosts > _FEW_HOSTS else 1.0


def of_middle_sizes(size: float, protocol: str) -> float:
    """Of that rate, what a message of a size reaches."""
    factors = _MIDDLE_SIZES.get(protocol)
    if factors is None or size < 64:
        return 1.0
    place = int(math.log2(size / 64))
    return factors[place] if place < len(factors) else 1.0
