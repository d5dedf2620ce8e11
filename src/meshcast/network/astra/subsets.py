"""Collectives and messages among some of a network's NPUs, as ASTRA-sim has them.

A communicator group that is not all NPUs is one ring through its members, in their order, whatever the system file says about
dimensions; its messages go over the network as it is. So members that are not neighbours have more hops between them,

    delay(a, b) = floor(hops(a, b) * latency + B / bandwidth)    in the first dimension in which a and b differ

and a ring of neighbours has a long way back from its last member to its first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.hardware import AstraDimension, AstraNetwork
from meshcast.network.astra.config import AstraBackend, AstraKind, AstraSystem
from meshcast.network.astra.events import EventQueue
from meshcast.network.astra.phases import chunk_phases
from meshcast.network.astra.simulation import simulate
from meshcast.network.astra.wires import between, wires_of

RING = ("ring",)


def subset_ns(
    network: AstraNetwork,
    system: AstraSystem,
    kind: AstraKind,
    size: int,
    members: Sequence[int],
    backend: AstraBackend = "Unaware",
) -> int:
    """Whole nanoseconds of one collective over some NPUs, alone on the network.

    Args:
        network: All NPUs.
        system: Chunks and delays; its algorithms are those of collectives over all NPUs.
        kind: The collective.
        size: Bytes as ASTRA-sim counts them.
        members: The NPUs, in the order of their ring.
        backend: With or without queues at the links.

    Raises:
        UsageError, UnsupportedError, InfeasibleError: As `finish_ns`.
    """
    ring = replace(system, all_reduce=RING, all_gather=RING, reduce_scatter=RING, all_to_all=RING)
    ways = {between(network, a, b) for a, b in zip(members, (*members[1:], members[0]), strict=True)}
    dimension, hops = next(iter(ways))
    # All ways alike: a network of such ways, on which one member stands for all.
    alike = AstraDimension(
        shape="FullyConnected", npus=len(members), bandwidth=dimension.bandwidth, latency_ns=hops * dimension.latency_ns
    )
    group = AstraNetwork(dimensions=(alike,))
    chunks = chunk_phases(group, ring, kind, size)
    if backend == "Unaware" and len(ways) == 1:
        return simulate(group, ring, chunks, backend, folded=True)
    return simulate(network, ring, chunks, backend, folded=False, places=members)


def message_ns(network: AstraNetwork, source: int, target: int, size: int, backend: AstraBackend = "Unaware") -> int:
    """Whole nanoseconds from a send to its receive: neither endpoint delays nor chunks are charged.

    Raises:
        UnsupportedError: The congestion-aware backend is asked for more than one dimension.
    """
    events = EventQueue()
    arrived: list[int] = []
    wires_of(network, events, backend, folded=False).carry(source, target, size, lambda: arrived.append(events.now))
    events.run()
    return arrived[0]
