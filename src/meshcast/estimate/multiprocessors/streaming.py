"""Loops over elements, copies and transposes: blocks of 128 threads that load, compute and store.

XLA gives a thread one element, and four neighbours (as many as divide the result) from as many elements on as the GPU holds
threads: results of 300,000 elements have a quarter of the blocks that those of 260,000 have, and take less time (openxla/xla,
`ComputeLoopFusionConfig`). An SM holds as many blocks as it has threads for. A block waits for its loads once (they are under
way together), issues its instructions, and stores: stores are not waited for, but take their way to L2. What bounds kernels of
small results is neither: an SM starts a block in some 160 cycles.

A transpose that leaves the innermost dimension where it is is such a loop. One that turns it goes through tiles of 32 x 32
elements in shared memory, a block each: rows in, a barrier, columns out.
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.elementwise import BLOCK, MOST_JOINED, LoopDemand, even_factor, loop_demand, tile_elements
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.multiprocessors.cache import misses
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.work import played
from meshcast.lower import Kernel, Recency
from meshcast.workload import element_bytes

COPIED = 16 * BLOCK  # bytes of a copy that a block moves at least: 16 a thread
COPY_WAVES = (
    4  # of blocks that an SM holds, which a large copy is shared out over: its threads take the rest in turns (ours)
)


def loop(demand: LoopDemand, chip: Chip) -> GpuWork:
    """A loop over elements; one that joins a few pieces goes over the largest of them, and does each on the way."""
    joined = 1 < len(demand.pieces) <= MOST_JOINED
    count = launched_blocks(demand.elements, chip, demand.pieces if joined else ())
    if not demand.bounded and not joined:  # a copy's threads take what an SM's blocks hold at once, piece after piece
        moved = demand.read + demand.written
        count = max(1, min(math.ceil(moved / COPIED), chip.sms * chip.core.threads // BLOCK * COPY_WAVES))
    return _streamed(
        count, demand.read, demand.written, demand.issued + demand.finding, demand.cycles, chip, demand.recency,
        started=demand.bounded or joined,
    )  # fmt: skip


def launched_blocks(elements: float, chip: Chip, pieces: tuple[int, ...] = ()) -> int:
    """Blocks of a loop: of one element a thread below as many as the GPU holds threads, of up to four from there on."""
    largest = elements * max(pieces) / sum(pieces) if pieces else elements
    many = largest >= chip.sms * chip.core.threads
    a_thread = math.gcd(even_factor(largest), *pieces) if many else 1
    return max(1, math.ceil(largest / (BLOCK * a_thread)))


def loop_fusion(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """An elementwise fusion, or any movement of data in one pass."""
    return loop(loop_demand(kernel, machine), chip)


def transpose(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A transpose on its own."""
    width = element_bytes(kernel.dtype)
    elements = kernel.written_bytes / width
    if "turned" not in kernel.flags:
        count = launched_blocks(elements, chip)
        return _streamed(count, kernel.read_bytes, kernel.written_bytes, 0.0, 0.0, chip, kernel.recency)
    looped = "unpacked" in kernel.flags
    return transposed(elements, width, chip, machine, kernel.recency, looped=looped)


def transposed(
    elements: float, width: float, chip: Chip, machine: GpuMachine, recency: Recency | None = None, *, looped: bool = False
) -> GpuWork:  # fmt: skip
    """A transpose through tiles in shared memory; elements of a byte and less are packed into words there, one by one.

    `looped`: a plain loop, element by element (`estimate.gpu.elementwise.transpose`).
    """
    p = chip.parameters
    count = launched_blocks(elements, chip) if looped else max(1, math.ceil(elements / tile_elements(width)))
    rate = machine.parameters.byte_transpose if looped else machine.parameters.packed_transpose
    an_element = chip.lanes / rate if width <= 1 else p.turned_instructions
    bytes_moved = elements * width
    waited = p.exchange_cycles
    if width <= 1 and not looped:
        waited += machine.parameters.packed_tile_cycles * tile_elements(width)
    return _streamed(count, bytes_moved, bytes_moved, elements * an_element, waited, chip, recency)


def _streamed(
    count: int, read: float, written: float, issued: float, chained: float, chip: Chip, recency: Recency | None, *,
    started: bool = True,
) -> GpuWork:  # fmt: skip
    """Blocks of 128 threads that each load, compute and store their share."""
    missed = misses(read, written, chip, recency)
    phases = []
    if read:
        latency = chip.load_cycles(missed.read)
        phases.append(
            Phase(
                least=latency,
                loads=1.0,
                waited=latency,
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
