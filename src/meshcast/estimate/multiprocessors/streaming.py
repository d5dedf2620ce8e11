"""Loops over elements, copies and transposes: blocks of 128 threads that load, compute and store.

XLA gives a thread up to four neighbouring elements and a block 128 threads; an SM holds as many blocks as it has threads for.
A block waits for its loads once (they are under way together), issues its instructions, and stores: stores are not waited
for, but take their way to L2. What bounds kernels of small results is neither: an SM starts a block in some 160 cycles.
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.elementwise import BLOCK, LoopDemand, blocks, loop_demand
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.multiprocessors.cache import misses
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.work import played
from meshcast.lower import Kernel, Recency
from meshcast.workload import element_bytes

COPIED = 16 * BLOCK  # bytes of a copy that a block moves at least: 16 a thread
TRANSPOSED = 4.0  # instructions of an element that goes through shared memory


def loop(demand: LoopDemand, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A loop over elements."""
    count = max(1, math.ceil(blocks(demand.elements, machine)))
    if not demand.bounded:  # a copy's threads take as much as an SM's blocks hold at once, one piece after the other
        moved = demand.read + demand.written
        count = max(1, min(math.ceil(moved / COPIED), chip.sms * chip.core.threads // BLOCK * 4))
    return _streamed(
        count, demand.read, demand.written, demand.issued + demand.finding, demand.cycles, chip, demand.recency,
        started=demand.bounded,
    )  # fmt: skip


def loop_fusion(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """An elementwise fusion, or any movement of data in one pass."""
    return loop(loop_demand(kernel, machine), chip, machine)


def transpose(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A transpose on its own."""
    width = element_bytes(kernel.dtype)
    return transposed(kernel.written_bytes / width, width, chip, machine, kernel.recency)


def transposed(
    elements: float, width: float, chip: Chip, machine: GpuMachine, recency: Recency | None = None
) -> GpuWork:
    """A transpose, with as many elements a thread as a loop; those of one byte are moved one by one."""
    count = max(1, math.ceil(blocks(elements, machine)))
    lanes = chip.lanes / machine.parameters.byte_transpose if width <= 1 else TRANSPOSED
    bytes_moved = elements * width
    return _streamed(count, bytes_moved, bytes_moved, elements * lanes, 0.0, chip, recency)


def _streamed(
    count: int, read: float, written: float, issued: float, chained: float, chip: Chip, recency: Recency | None, *,
    started: bool = True,
) -> GpuWork:  # fmt: skip
    """Blocks of 128 threads that each load, compute and store their share."""
    missed = misses(read, written, chip, recency)
    phases = []
    if read:
        phases.append(
            Phase(
                least=chip.load_cycles(missed.read),
                cached=read / count,
                dram=chip.dram_bytes(read * missed.read / count, 0),
            )
        )
    if issued or chained:
        phases.append(Phase(least=chained, issue=issued / chip.lanes / count))
    if written:
        phases.append(Phase(cached=written / count, dram=chip.dram_bytes(0, written * missed.written / count)))
    launch = BlockGrid(
        blocks=((count, tuple(phases)),),
        resident=max(1, chip.core.threads // BLOCK),
        start=chip.parameters.start_cycles if started else 0.0,
    )
    return played(launch, chip, moved=read * missed.read + written * missed.written, instructions=issued)
