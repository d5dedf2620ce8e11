"""What a kernel asks of a GPU's SMs: thread blocks, each a sequence of phases with their demands."""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.base import made_quickly


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a block's life in which everything it asks for overlaps; phases of one block follow each other.

    Attributes:
        least: Cycles that it takes with the GPU to itself: latencies, chains of dependent instructions, loads in flight.
        loads: Of these, times that it waits for a load, one after the other: each takes longer where others queue (`queues.py`).
        waited: Cycles of those loads with the GPU to themselves.
        tensor: Cycles of its SM's tensor cores.
        shared: Cycles of its SM's shared memory port.
        issue: Cycles of its SM's instruction issue.
        cached: Bytes that pass between the SM and L2.
        dram: Bytes that pass between L2 and memory, writes weighted by what they cost (`Chip.dram_bytes`).
    """

    least: float = 0.0
    loads: float = 0.0
    waited: float = 0.0
    tensor: float = 0.0
    shared: float = 0.0
    issue: float = 0.0
    cached: float = 0.0
    dram: float = 0.0


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGrid:
    """A kernel: blocks in the order in which they are handed out.

    Attributes:
        blocks: (how many, their phases); kinds of block in the order of the grid.
        resident: Blocks that an SM holds at once (`occupancy`).
        start: Cycles for which a block that starts holds its SM's launch unit; 0 between the tiles of a persistent kernel.
        first: Phases before a persistent block's first tile alone.
    """

    blocks: tuple[tuple[int, tuple[Phase, ...]], ...]
    resident: int
    start: float
    first: tuple[Phase, ...] = ()


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a launch, in cycles of the SMs' clock.

    Attributes:
        cycles: From the first block's start to the last one's end.
        tensor: Cycles that the tensor cores were busy, averaged over all SMs; the same for `issue`.
        issue: See `tensor`.
        cached: Bytes between SMs and L2.
        dram: Bytes (weighted) between L2 and memory.
        events: Steps that the simulator took.
        waves: Rounds of blocks that an SM of the first class went through.
    """

    cycles: float
    tensor: float
    issue: float
    cached: float
    dram: float
    events: int
    waves: float


def scaled(phases: tuple[Phase, ...], bundle: int) -> tuple[Phase, ...]:
    """The phases of a bundle of blocks that start together: each waits as long as one, and asks for as much as all."""
    if bundle == 1:
        return phases
    return tuple(
        Phase(
            least=each.least,
            loads=each.loads,
            waited=each.waited,
            tensor=each.tensor * bundle,
            shared=each.shared * bundle,
            issue=each.issue * bundle,
            cached=each.cached * bundle,
            dram=each.dram * bundle,
        )
        for each in phases
    )
