"""Reductions: a block for a row or several short ones, 32 x 32 threads down columns, a program a row for normalisations.

A thread has `loads_ahead` loads under way; a block goes over its share in as many rounds of a load's latency as it takes, its
warps exchange their sums, and it stores. A column's block takes 32 rows a step. Sums of a whole array, and long rows or
columns, come as two kernels from the lowering (`lower.graph.reduction_stages`).
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.column_sums import TILE
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.reduction import normalisation_instructions, reduction_form, reduction_instructions
from meshcast.estimate.multiprocessors.cache import misses
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.grid import BlockGrid, Phase
from meshcast.estimate.multiprocessors.work import played
from meshcast.lower import Kernel, short_name
from meshcast.workload import Reduction

ROW_THREADS = 256  # of a block that goes over rows (openxla/xla, `RowReductionFusion`)
WARP = 32
SUMMED = 16  # elements of a row that a thread adds up, if the row has enough (openxla/xla, `GetReductionTiling`)
LOADED = 16  # bytes of a thread's load: the widest that there is
ROW_BYTES = 8192  # of rows that a block goes over at least: two loads of each of its threads (ours)
MOST_THREADS = 1024  # of a block (CUDA C++ Programming Guide)
FEWEST_THREADS = 128  # of a normalisation's program: four warps, Triton's default
NORMALISED = 8  # elements of a row that a thread of it holds, if the row has enough: a load of 16 bytes of two each
MASKING = frozenset({"iota", "compare", "and", "or", "not"})  # what masks of places are made of


def reduction(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A fusion with reductions in it."""
    shape, form = kernel.geometry, reduction_form(kernel)
    if form == "streaming" or not isinstance(shape, Reduction):
        return _rows(kernel, chip, machine)
    elements = math.prod(shape.shape)
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    if form == "columns":
        return _columns(kernel, elements // reduced, reduced, chip, machine)
    return _normalised(kernel, elements, elements // reduced, chip, machine)


def _rows(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """Rows that are summed, or any pass with sums beside it: 16 elements a thread, whole warps, short rows together."""
    shape, read = kernel.geometry, float(kernel.read_bytes)
    issued = reduction_instructions(kernel, machine)
    if not isinstance(shape, Reduction) or not shape.dims:
        return _passed(kernel, max(1, math.ceil(read / ROW_BYTES)), ROW_THREADS, LOADED, issued, chip)
    row = max(1, math.prod(shape.shape[d] for d in shape.dims))
    rows = math.prod(shape.shape) // row
    across = min(MOST_THREADS, WARP * math.ceil(row / SUMMED / WARP))
    together = max(1, min(rows, ROW_THREADS // across))
    width = _loaded_bytes(row, read / max(1, row * rows))
    return _passed(kernel, max(1, math.ceil(rows / together)), across * together, width, issued, chip)


def _loaded_bytes(row: int, width: float) -> float:
    """Bytes of a thread's load: up to 16 of neighbours, as many as divide a row."""
    neighbours = next(each for each in (4, 2, 1) if not row % each)
    return min(float(LOADED), max(1.0, neighbours * width))


def _columns(kernel: Kernel, kept: int, reduced: int, chip: Chip, machine: GpuMachine) -> GpuWork:
    """Columns: 32 of them and 32 rows at a time, an element a thread."""
    count = max(1, math.ceil(kept / TILE))
    width = max(1.0, kernel.read_bytes / max(1, kept * reduced))
    return _passed(kernel, count, TILE * TILE, width, reduction_instructions(kernel, machine), chip)


def _normalised(kernel: Kernel, elements: int, rows: int, chip: Chip, machine: GpuMachine) -> GpuWork:
    """Rows that are summed and written again: a program a row, short rows together."""
    issued = normalisation_instructions(kernel, elements, rows, machine) * _repeated(kernel, elements)
    row_bytes = (kernel.read_bytes + kernel.written_bytes) / rows
    together = max(1, int(ROW_BYTES // max(1.0, row_bytes)))
    count = max(1, math.ceil(rows / together))
    threads = min(MOST_THREADS, max(FEWEST_THREADS, 1 << math.ceil(math.log2(max(1.0, elements / rows / NORMALISED)))))
    return _passed(kernel, count, threads, LOADED, issued, chip)


def _repeated(kernel: Kernel, elements: int) -> float:
    """What a program computes over what the ops ask for: a mask of places is one for all heads, and is computed in each row."""
    own = (kernel.vector_flops + kernel.transcendentals) / elements
    names = [short_name(name) for name in kernel.ops]
    masking = sum(name in MASKING for name in names) if "iota" in names else 0
    return 1 + masking / own if own else 1.0


def _passed(kernel: Kernel, count: int, threads: int, width: float, issued: float, chip: Chip) -> GpuWork:
    """Blocks that load their share in rounds, compute beside it, exchange sums and store.

    Args:
        kernel: What runs.
        count: Blocks.
        threads: Of a block.
        width: Bytes of a thread's load.
        issued: Thread instructions in all.
        chip: The GPU.
    """
    read, written, p = kernel.read_bytes, kernel.written_bytes, chip.parameters
    missed = misses(read, written, chip, kernel.recency)
    rounds = max(1.0, read / count / (threads * width * p.loads_ahead))
    waited = rounds * chip.load_cycles(missed.read)
    load = Phase(
        least=waited,
        loads=rounds,
        waited=waited,
        issue=issued / count / chip.lanes,
        cached=read / count,
        dram=chip.dram_bytes(read * missed.read / count, 0),
    )
    exchanges = max(1, sum(short_name(name) == "reduce" for name in kernel.ops))
    exchange = Phase(least=exchanges * p.exchange_cycles)
    store = Phase(cached=written / count, dram=chip.dram_bytes(0, written * missed.written / count))
    launch = BlockGrid(
        blocks=((count, (load, exchange, store)),),
        resident=max(1, chip.core.threads // threads),
        start=p.start_cycles,
    )
    return played(launch, chip, moved=read * missed.read + written * missed.written, instructions=issued)
