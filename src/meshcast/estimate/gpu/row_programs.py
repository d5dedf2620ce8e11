"""Row reductions and normalisations in Triton's tiles: programs that hold whole rows in registers.

XLA's compiler says in its HLO how many rows a program takes and how many warps share them. A thread of a program with `E`
elements (rows are filled up to a power of two) on `T` threads holds `e = E / T` of each of `o` operands,

    r = first + e o v

registers, where `v` is what ptxas makes of the PTX that XLA writes for such programs: 0.9 for a value, 1.3 where the rows of a
program do not follow each other (XLA takes one row of many heads together where they share its mask), 2.15 where masked values of
those are held through several reductions and then written: Triton keeps them in two orders of threads, and works out exponentials
twice. That has three consequences:
 - an SM runs few programs at once, `R = registers of an SM / (T min(r, 255))`. A program loads, computes and stores in turn, so
   that one alone overlaps nothing, and more of them more, `p = min(2, 1 + (R - 1) / 8)`. Programs come in `w = n / (SMs R)`
   waves, each with the exchanges of its reductions;
 - what a thread cannot hold (255 registers, CUDA C++ Programming Guide, table of technical specifications) is spilled: whole
   values of each of its elements are written and read again, through L2,
   `spill = 8 n E ceil((r - 255) / e) s / (L2 bandwidth)` where r > 255;
 - values in two orders are turned in shared memory, some cycles for each element of each operand, and some for each row:
   `turn = o n (E c + rows c') / (SMs clock)`. Rows whose length vectors of 8 do not divide are loaded in one order alone.

    t = start + |mem, issue + turn|_p + (w reductions - 1) c + spill

`issue` counts the elements beyond a row's end, too. Measured on an H200 (`data/measured/h200-row-programs`, `h200-corpus`): a
softmax over 1,024 f32 numbers a row with a mask that heads share takes 282 us for 67 million of them, one without 116 us.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from meshcast.base import larger
from meshcast.estimate.gpu.elementwise import SCALARS
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
VALUE, STREWN_VALUE, TWICE_VALUE = (
    0.9,
    1.3,
    2.15,
)  # registers of a value, by ptxas: of rows together, apart, in two orders
VECTOR = 8  # elements that the widest loads take of a row
WIDEST_LOAD = 16  # bytes of them
TWICE = 1.7  # instructions of a program whose values are held in two orders, over those of one (PTX)
LARGE_TILE, SMALL_TILE = (16384, 8), (2048, 4)  # elements of a program, and warps
# What stands between places and their comparison where nothing else is compared: constants are written anywhere.
_BESIDE_PLACES = frozenset({"broadcast_in_dim", "reshape", "add", "convert", "constant"})
FEW_ELEMENTS = 1 << 22  # that large tiles leave too few programs of
SIDE_BY_SIDE = 8  # further programs of an SM until arithmetic overlaps memory as in other kernels


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


def held_twice(kernel: Kernel, shape: Reduction) -> bool:
    """Whether values are held in two orders of threads: of rows apart with a mask of their own, through several reductions.

    Not of rows of one operand whose compared places fill more than a vector of each thread: what both orders then have in common
    is worked out once, and ptxas gives such programs 128 registers where it gives others 168 to 200 (20 softmaxes compiled for an
    H200: from bf16 or to it 4,096 numbers and not 2,048 on 256 threads; of f32 alone 2,048 and not 1,024). Masks that are loaded
    stay twice, and so do gradients, whose two operands take all registers (6 compiled).
    """
    several = reductions(kernel.ops) > 1 and kernel.elements >= math.prod(shape.shape) / 2
    if not several or "strewn" not in kernel.flags or not mask_is_shared(kernel, shape):
        return False
    elements = math.prod(shape.shape)
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    vectors = WARP * max(1, kernel.warps) * WIDEST_LOAD / _narrowest(kernel, shape)
    loaded = any(SCALARS < size < WHOLE * elements for size in kernel.operand_bytes)
    return reduced <= vectors or loaded or held_operands(kernel, shape) > 1 or not _is_causal(kernel)


def _narrowest(kernel: Kernel, shape: Reduction) -> float:
    """Bytes of the narrowest numbers that a program loads or stores for every element."""
    elements = math.prod(shape.shape)
    sizes = [size / elements for size in (*kernel.operand_bytes, kernel.written_bytes) if size >= WHOLE * elements]
    return min(sizes, default=float(WORD))


def words_of_operands(kernel: Kernel, shape: Reduction) -> float:
    """Registers that an element's operands fill: those of operands that have every element."""
    elements = max(1, math.prod(shape.shape))
    sizes = kernel.operand_bytes or (kernel.read_bytes,)
    return sum(size for size in sizes if size >= WHOLE * elements) / elements / WORD


def held_operands(kernel: Kernel, shape: Reduction) -> int:
    """Operands that have every element, at least one."""
    elements = max(1, math.prod(shape.shape))
    return max(1, sum(size >= WHOLE * elements for size in kernel.operand_bytes or (kernel.read_bytes,)))


def registers_of(kernel: Kernel, shape: Reduction) -> float:
    """Registers that a thread would like to have."""
    twice = held_twice(kernel, shape)
    value = TWICE_VALUE if twice else STREWN_VALUE if "strewn" in kernel.flags else VALUE
    return FIRST_REGISTERS + per_thread(kernel, shape) * held_operands(kernel, shape) * value


def row_program(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A fusion of rows in tiles."""
    shape, p = kernel.geometry, machine.parameters
    assert isinstance(shape, Reduction)
    held, threads = elements_of_program(kernel, shape), WARP * max(1, kernel.warps)
    count = programs_of(kernel)
    each = held / threads
    registers, twice = registers_of(kernel, shape), held_twice(kernel, shape)
    resident = REGISTERS // (threads * min(MOST_REGISTERS, registers))
    resident = min(max(1.0, resident), BLOCKS_PER_SM, max(1, THREADS_PER_SM // threads))
    waves = larger(1.0, count / (machine.sms * resident))
    exchanged = (waves * reductions(kernel.ops) - 1) * p.row_exchange_cycles / machine.clock
    spilled = math.ceil(max(0.0, registers - MOST_REGISTERS) / max(1.0, each)) * held * count * 2 * WORD
    spilling = p.row_spilled * spilled / machine.cache_bandwidth
    elements = float(math.prod(shape.shape))
    work = (p.row_issue * kernel.vector_flops + p.row_function * kernel.transcendentals) * (TWICE if twice else 1.0)
    issued = work / elements * max(elements, held * count)
    issue = issued / machine.instruction_rate
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    turned = held * count * p.row_turn_cycles + elements / reduced * p.row_turned_cycles
    turned *= held_operands(kernel, shape) if twice and reduced % VECTOR == 0 else 0.0
    turn = turned / (machine.sms * machine.clock * resident)
    norm = min(p.row_overlap, 1 + (resident - 1) / SIDE_BY_SIDE)
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    waited = p.reduction_cycles + (p.wait_cycles if kernel.recency is not None else 0.0)
    fixed = machine.launch + waited / machine.clock
    return GpuWork(
        time=fixed + _joined(moved.seconds, issue + turn, norm) + exchanged + spilling,
        compute=issue + turn + exchanged + spilling,
        computing=issue,
        fixed=fixed,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = start + |mem, issue + turn|_p + exchange + spill",
        terms=(
            *moved.terms,
            *machine.named(
                ("programs", "n", count, ""),
                ("elements of a thread", "e", each, ""),
                ("registers of a thread", "r", registers, ""),
                ("programs of an SM at a time", "R", resident, ""),
                ("waves", "w", waves, ""),
                *machine.issuing(issued, issue),
                ("values turned in shared memory", "turn", turn, "s"),
                ("exchanges between warps", "exchange = (w reductions - 1) c", exchanged, "s"),
                ("values that registers do not hold", "spill", spilling, "s"),
                ("launch, and from the last load to the result", "start", fixed, "s"),
                ("norm of what overlaps", "p", norm, ""),
            ),
        ),
    )


def _joined(memory: float, busy: float, norm: float) -> float:
    longest = larger(memory, busy)
    joined: float = longest * ((memory / longest) ** norm + (busy / longest) ** norm) ** (1 / norm)
    return joined


def as_tiled(kernel: Kernel, shape: Reduction) -> Kernel:
    """A normalisation of modelled kernels with the tile that XLA's model of them would choose.

    Programs with an operand that rows share (a scale, a mask, compared places) take 16 K elements on 8 warps, which load it once;
    others, and those of few elements, 2 K on 4: so the compiler mostly chose for `data/measured/h200-row-programs/open`, which
    weighs bytes against programs. Rows of a mask that outer dimensions share are taken together over these.
    """
    elements = math.prod(shape.shape)
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    rows = elements // max(1, reduced)
    strewn = mask_is_shared(kernel, shape)
    per_row = {rows * width for width in (1, 2, 4)}
    shared = strewn or any(SCALARS < size < WHOLE * elements and size not in per_row for size in kernel.operand_bytes)
    length = 1 << max(0, math.ceil(math.log2(max(1, reduced))))
    tile, warps = LARGE_TILE if shared and rows * length >= FEW_ELEMENTS else SMALL_TILE
    held = max(tile, length)
    flags = kernel.flags | {"strewn"} if strewn else kernel.flags - {"strewn"}
    return replace(kernel, tile=held, warps=warps, programs=max(1, math.ceil(rows * length / held)), flags=flags)


def mask_is_shared(kernel: Kernel, shape: Reduction) -> bool:
    """Whether outer dimensions share a mask of rows and columns: an operand of just these, or compared places.

    An operand that could as well be a number for each row (a sum, a maximum) is taken for one.
    """
    kept = [size for dim, size in enumerate(shape.shape) if dim not in shape.dims and size > 1]
    if len(kept) < 2:
        return False
    reduced = math.prod(shape.shape[d] for d in shape.dims)
    rows = math.prod(kept)
    masks = {kept[-1] * reduced * width for width in (1, 2, 4)} - {rows * width for width in (1, 2, 4)}
    return _is_causal(kernel) or not masks.isdisjoint(kernel.operand_bytes)


def _is_causal(kernel: Kernel) -> bool:
    """Whether a mask is made of compared places, and not of lengths that are read."""
    return "lengths" not in kernel.flags and _compares_places(kernel.ops)


@functools.lru_cache(maxsize=4096)
def _compares_places(ops: tuple[str, ...]) -> bool:
    """Whether a fusion compares places, rows with columns, as causal masks do: two countings, or one that is spread both ways."""
    names = [short_name(name) for name in ops]
    if names.count("iota") != 1:
        return names.count("iota") > 1
    after = names[names.index("iota") + 1 :]
    between = after[: after.index("compare")] if "compare" in after else []
    return between.count("broadcast_in_dim") > 1 and set(between) <= _BESIDE_PLACES
