"""`LinkTechnology`: what software makes of a kind of link: the share of its rate, what a start, a step and a chunk cost.

A network level says what the hardware has (links, wire rate, latency of a hop). Its technology says what a collective
library gets out of it. One set of numbers serves every system with that technology, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from meshcast.hardware.device import Fact, Source

Library = Literal["nccl", "xla-tpu", "neuron", "hccl", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProtocol:
    """One way in which software moves data over a link.

    Attributes:
        name: "LL", "LL128" or "Simple" for NCCL and RCCL; empty where there is one way only.
        share: Of the technology's rate, what the payload keeps beside flags.
        step_s: Seconds of software in one step, beside the level's latency.
        chunk_s: Seconds that handing over one chunk costs beside its bytes.
        limit: bytes/s that a device moves in this way at most, however fast its links are.
        start_s: Seconds that a start takes with it beyond the technology's.
    """

    name: str = ""
    share: float = 1.0
    step_s: float = 0.0
    chunk_s: float = 0.0
    limit: float = math.inf
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTechnology:
    """A kind of link as software uses it: the share of its rate that is reached, and what a start, a step and a chunk cost.

    Attributes:
        library: Whose rules choose algorithms and protocols.
        between_hosts: Whether it joins hosts, so that network cards and their software take part.
        share: Of the wire rate, what payloads reach with large messages: headers, flits, acknowledgements.
        start_s: Seconds before the first step of a collective: the launch, and waiting for each other.
        pair_start_s: The same for a permutation, in which only pairs wait for each other.
        post_s: Seconds that one more peer costs its sender in an exchange with many at once.
        protocols: The ways to move data over it; at least one.
        in_network_share: Of `share`, what switches that add leave; 0 where the library has no use for them.
        in_network_start_s: Seconds that asking the switches costs beside `start_s`.
        in_network_members: Fewest members of a group for which the library asks the switches to add.
        in_network_heads: Members of a domain that join it to others where switches add inside; 0: all of them.
        in_network_channels: Channels in which a head hands on chunks then.
        in_network_chunk: Bytes of such a chunk; 0: as small as one likes.
        variation: Standard deviation of the steps of the parts that it joins, as a share: all wait for the slowest.
        ring_plateau: How many times its steps' latency an all-reduce on a ring across hosts takes, as the library reckons.
        rings_share: Of `share`, what rings along several dimensions of a torus reach when they run at once.
    """

    name: str
    title: str
    library: Library
    between_hosts: bool = False
    share: float = 1.0
    start_s: float = 0.0
    pair_start_s: float = 0.0
    post_s: float = 0.0
    protocols: tuple[LinkProtocol, ...] = (LinkProtocol(),)
    in_network_share: float = 0.0
    in_network_start_s: float = 0.0
    in_network_members: int = 0
    in_network_heads: int = 0
    in_network_channels: int = 1
    in_network_chunk: float = 0.0
    variation: float = 0.0
    ring_plateau: float = 1.0
    rings_share: float = 1.0
    aliases: tuple[str, ...] = ()
    notes: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False, repr=False, compare=False)
    sources: Mapping[str, Source] = field(default_factory=dict, hash=False, repr=False, compare=False)


# What a level without a technology has: the textbook's alpha and beta, links at their full rate and nothing to start.
# One more message costs its sender a tenth of a microsecond: one queue that posts ten million a second. An assumption;
# it only keeps a direct exchange from being free of its number of peers.
TEXTBOOK = LinkTechnology(name="textbook", title="alpha and beta alone", library="none", post_s=0.1e-6)
