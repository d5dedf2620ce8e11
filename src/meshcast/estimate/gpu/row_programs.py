"""Row reductions and normalisations in Triton's tiles: programs that hold whole rows in registers.

XLA's compiler says in its HLO how many rows a program takes and how many warps share them. A thread of a program with `E`
elements (rows are filled up to a power of two) on `T` threads holds `e = E / T` of them, each in

    v = (words of its operands) + extra,  + mask where rows and columns are masked before two reductions or more

registers, so that a thread has `r = first + e v` of them. That has two consequences:
 - an SM runs few programs at once, `R = registers of an SM / (T min(r, 255))`, and a program's parts wait for each other: loads,
   each reduction's exchange between warps, the store. Programs come in `w = ceil(n / (SMs R))` waves, each with the
   exchanges of its reductions, and arithmetic overlaps memory less than elsewhere (`p = row_overlap`);
 - what a thread cannot hold (255 registers, CUDA C++ Programming Guide, table of technical specifications) is spilled: whole
   values of each of its elements are written and read again, through L2,
   `spill = 8 n E ceil((r - 255) / e) s / (L2 bandwidth)` where r > 255.

    t = start + |mem, issue|_p + w c reductions - c + spill

`issue` counts the elements beyond a row's end, too. Measured on an H200: a softmax over 1,024 f32 numbers a row with a mask takes
282 us for 67 million of them, one without a mask 116 us, one in bf16 with a mask 109 us.
"""

from __future__ import annotations

import functools
import math

from meshcast.estimate.gpu.machine import BLOCKS_PER_SM, THREADS_PER_SM, WARP, GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import Kernel, KernelKind, short_name
from meshcast.workload import Reduction

REGISTERS = 65536  # of an SM, 4 bytes each, on NVIDIA's GPUs since Kepler (CUDA C++ Programming Guide)
MOST_REGISTERS = 255  # of a thread
FIRST_REGISTERS = 32  # addresses, bounds and what the compiler keeps beside the values
WORD = 4  # bytes of a register
WHOLE = 0.9  # of the elements that a tile must cover, and bytes for each from which an operand is one of every element
MOST_COVERED = 4.0  # times as many elements, where a row and the rows of a tile are filled up, each by less than two
REPEATED = (
    16  # bytes for each column from which a smaller operand is one of rows and columns that is repeated, and no vector
)


def is_row_program(kernel: Kernel) -> bool:
    """Whether a kernel reduces along rows, in programs whose tiles are known and cover just what it reduces.

    Where a fusion's reduction is not what its tiles cover (a broadcast of sums, several of different sizes), nothing tells what
    a thread holds.
    """
    shape = kernel.geometry
    if not kernel.tile or kernel.kind is not KernelKind.REDUCTION or not isinstance(shape, Reduction):
        return False
    if not shape.reduces_minor or "gather" in kernel.flags:
        return False
    covered = elements_of_program(kernel, shape) * programs_of(kernel)
    return WHOLE <= covered / max(1, math.prod(shape.shape)) <= MOST_COVERED


def elements_of_program(kernel: Kernel, shape: Reduction) -> float:
    """Elements that a program holds: its tile, times a row filled up to a power of two where results have none of it."""
    elements = math.prod(shape.shape)
    if kernel.elements >= elements / 2:
        return float(kernel.tile)
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    return float(kernel.tile * (1 << max(0, math.ceil(math.log2(max(1, reduced))))))


def programs_of(kernel: Kernel) -> int:
    """Programs that cover the result."""
    return kernel.programs or math.ceil(max(1, kernel.elements) / kernel.tile)


def per_thread(kernel: Kernel, shape: Reduction) -> float:
    """Elements that a thread holds."""
    return elements_of_program(kernel, shape) / (WARP * max(1, kernel.warps))


@functools.lru_cache(maxsize=4096)
def reductions(ops: tuple[str, ...]) -> int:
    """Reductions among a fusion's ops, at least one."""
    return max(1, sum(short_name(name) == "reduce" for name in ops))


@functools.lru_cache(maxsize=4096)
def _places_masked(ops: tuple[str, ...]) -> bool:
    """Whether a fusion compares places: rows with columns, as causal masks do."""
    return sum(short_name(name) == "iota" for name in ops) > 1


def is_masked(kernel: Kernel, shape: Reduction) -> bool:
    """Whether a mask of rows and columns is held through several reductions: an operand that is repeated, or compared places."""
    if reductions(kernel.ops) < 2:
        return False
    elements = math.prod(shape.shape)
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    repeated = any(REPEATED * reduced <= size < WHOLE * elements for size in kernel.operand_bytes)
    return repeated or _places_masked(kernel.ops)


def words_of_operands(kernel: Kernel, shape: Reduction) -> float:
    """Registers that an element's operands take: those of operands that have every element."""
    elements = max(1, math.prod(shape.shape))
    sizes = kernel.operand_bytes or (kernel.read_bytes,)
    return sum(size for size in sizes if size >= WHOLE * elements) / elements / WORD


def row_program(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A fusion of rows in tiles."""
    shape, p = kernel.geometry, machine.parameters
    assert isinstance(shape, Reduction)
    held, threads = elements_of_program(kernel, shape), WARP * max(1, kernel.warps)
    count = programs_of(kernel)
    each = held / threads
    values = words_of_operands(kernel, shape) + p.row_extra + p.row_mask * is_masked(kernel, shape)
    registers = FIRST_REGISTERS + each * values
    resident = REGISTERS // (threads * min(MOST_REGISTERS, registers))
    resident = min(max(1.0, resident), BLOCKS_PER_SM, max(1, THREADS_PER_SM // threads))
    waves = math.ceil(count / (machine.sms * resident))
    exchanged = (waves * reductions(kernel.ops) - 1) * p.row_exchange_cycles / machine.clock
    spilled = math.ceil(max(0.0, registers - MOST_REGISTERS) / max(1.0, each)) * held * count * 2 * WORD
    spilling = p.row_spilled * spilled / machine.cache_bandwidth
    elements = float(math.prod(shape.shape))
    work = p.row_issue * kernel.vector_flops + p.row_function * kernel.transcendentals
    issued = work / elements * max(elements, held * count)
    issue = issued / machine.instruction_rate
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    waited = p.reduction_cycles + (p.wait_cycles if kernel.recency is not None else 0.0)
    fixed = machine.launch + waited / machine.clock
    return GpuWork(
        time=fixed + _joined(moved.seconds, issue, p.row_overlap) + exchanged + spilling,
        compute=issue + exchanged + spilling,
        computing=issue,
        fixed=fixed,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = start + |mem, issue|_p + exchange + spill",
        terms=(
            *moved.terms,
            *machine.named(
                ("programs", "n", count, ""),
                ("elements of a thread", "e", each, ""),
                ("registers of a thread", "r", registers, ""),
                ("programs of an SM at a time", "R", resident, ""),
                ("waves", "w", waves, ""),
                *machine.issuing(issued, issue),
                ("exchanges between warps", "exchange = (w reductions - 1) c", exchanged, "s"),
                ("values that registers do not hold", "spill", spilling, "s"),
                ("launch, and from the last load to the result", "start", fixed, "s"),
                ("norm of what overlaps", "p", p.row_overlap, ""),
            ),
        ),
    )


def _joined(memory: float, issue: float, norm: float) -> float:
    longest = max(memory, issue)
    return longest * ((memory / longest) ** norm + (issue / longest) ** norm) ** (1 / norm) if longest else 0.0
