"""What ASTRA-sim's system layer makes of a collective: chunks, and for each of them phases, one dimension after another.

An all-gather takes the dimensions from the last to the first, everything else from the first to the last. An all-reduce
with `localBWAware` is a reduce-scatter in every dimension but the last, an all-reduce in the last, and all-gathers back;
with `baseline` it is a whole all-reduce in every dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshcast.base import InfeasibleError, UnsupportedError, UsageError
from meshcast.hardware import AstraNetwork
from meshcast.network.astra.config import AstraKind, AstraSystem, Implementation, implementations

MOST_CHUNKS = 10_000  # half a millisecond each; a hundred times as many as simulations of ASTRA-sim have


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraPhase:
    """One chunk's collective in one dimension.

    Attributes:
        dimension: Whose queue the chunk waits in.
        npus: Members of the phase; their numbers are `stride` apart.
        kind: The collective.
        implementation: Its algorithm.
        size: Bytes that an NPU starts with; of an all-gather its own shard.
        call: How often the dimension was asked for its tree before: a double binary tree has two and takes turns.
    """

    dimension: int
    npus: int
    stride: int
    kind: AstraKind
    implementation: Implementation
    size: int
    call: int

    @property
    def final_size(self) -> int:
        """Bytes that an NPU ends with. The tree reduces all to all whatever it is asked for."""
        if self.implementation.pattern == "doubleBinaryTree" or self.kind in ("all_reduce", "all_to_all"):
            return self.size
        return self.size * self.npus if self.kind == "all_gather" else self.size // self.npus


def chunk_sizes(kind: AstraKind, size: int, splits: int, npus: int) -> tuple[int, ...]:
    """Bytes of every chunk.

    All have `size // splits` bytes, so that a size that does not divide makes one more, and the total more than `size`.
    Except for an all-gather a chunk has at least a byte for every NPU.

    Raises:
        UsageError: `splits` is not positive, or too many for this size.
        UnsupportedError: They are more than are simulated.
    """
    if splits < 1:
        raise UsageError(
            f"preferred-dataset-splits is {splits}: ASTRA-sim divides by it", fix="set it to 1 or more chunks"
        )
    if splits > MOST_CHUNKS:
        raise UnsupportedError(
            f"preferred-dataset-splits is {splits:,}, and chunks are simulated one by one: {MOST_CHUNKS:,} at most",
            fix="use fewer preferred-dataset-splits",
        )
    chunk = size // splits
    if kind != "all_gather" and chunk < npus:
        return (npus,) * splits
    if chunk == 0:
        raise UsageError(
            f"an all-gather of {size} bytes cannot be cut into {splits} chunks",
            fix="use fewer preferred-dataset-splits",
        )
    return (chunk,) * -(-size // chunk)


def chunk_phases(
    network: AstraNetwork, system: AstraSystem, kind: AstraKind, size: int
) -> list[tuple[AstraPhase, ...]]:
    """The phases of every chunk of a collective over all NPUs.

    Raises:
        UsageError: The network, the system and the size do not go together.
        UnsupportedError: An algorithm does not work for a dimension.
        InfeasibleError: A message would be empty.
    """
    if size < 1:
        raise UsageError(f"a collective of {size} bytes", fix="give at least 1 byte")
    chosen = implementations(network, system, kind)
    calls = [0] * len(chosen)
    return [
        tuple(_phases(network, chosen, kind, chunk, calls, scatter_first=system.optimisation == "localBWAware"))
        for chunk in chunk_sizes(kind, size, system.splits, network.npus)
    ]


def _phases(
    network: AstraNetwork, chosen: tuple[Implementation, ...], kind: AstraKind, chunk: int, calls: list[int], *,
    scatter_first: bool,
) -> Iterator[AstraPhase]:  # fmt: skip
    order = list(range(len(chosen)))
    steps: list[tuple[AstraKind, int]]
    if kind == "all_reduce" and scatter_first:
        *inner, last = order
        steps = [("reduce_scatter", at) for at in inner]
        steps += [("all_reduce", last)]
        steps += [("all_gather", at) for at in reversed(inner)]
    else:
        steps = [(kind, at) for at in (reversed(order) if kind == "all_gather" else order)]
    for step, at in steps:
        whole = chosen[at].whole
        stride = 1
        for dimension in network.dimensions[:at]:
            stride *= dimension.npus
        phase = AstraPhase(
            dimension=at, npus=network.npus if whole else network.dimensions[at].npus, stride=stride, kind=step,
            implementation=chosen[at], size=chunk, call=calls[at],
        )  # fmt: skip
        calls[at] += 1
        _check_messages(phase)
        yield phase
        chunk = phase.final_size


def _check_messages(phase: AstraPhase) -> None:
    if phase.kind != "all_gather" and phase.implementation.pattern != "doubleBinaryTree" and phase.size < phase.npus:
        raise InfeasibleError(
            f"{phase.size} bytes are left to be divided among {phase.npus} NPUs in dimension {phase.dimension}: ASTRA-sim "
            "would send empty messages",
            fix="use a larger collective or fewer preferred-dataset-splits",
        )
