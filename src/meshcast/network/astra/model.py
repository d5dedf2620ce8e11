"""`finish_ns`: when the last NPU of a collective is done, by ASTRA-sim's rules."""

from __future__ import annotations

from meshcast.hardware.astra import AstraNetwork
from meshcast.network.astra.config import AstraSystem, Backend, Kind
from meshcast.network.astra.phases import chunk_phases
from meshcast.network.astra.simulation import foldable, simulate


def finish_ns(network: AstraNetwork, system: AstraSystem, kind: Kind, size: int, backend: Backend = "Unaware") -> int:
    """Whole nanoseconds of one collective over all NPUs, alone on the network.

    Args:
        network: Its dimensions.
        system: Algorithms, chunks, delays.
        kind: The collective.
        size: Bytes as ASTRA-sim counts them: what an NPU starts with; of an all-gather its own shard.
        backend: With or without queues at the links.

    Raises:
        UsageError: Network, system and size do not go together.
        UnsupportedError: ASTRA-sim has no such algorithm, or not here.
        InfeasibleError: Messages would be empty.
    """
    chunks = chunk_phases(network, system, kind, size)
    return simulate(network, system, chunks, backend, folded=foldable(network, chunks, backend))
