"""Loop fusions: `t = launch + |blocks / block rate, bytes / bandwidth, instructions / issue rate|_p`.

XLA gives each thread four neighbouring elements (one, for results with fewer elements than the GPU holds threads) and
each block 128 threads. An H200 starts some 1.6 blocks a nanosecond, whatever they do: filling a bf16 array takes as
long as applying `exp` to it, and 2-byte results never reach the memory's bandwidth.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from meshcast.base import larger, largest, made_quickly, smaller
from meshcast.estimate.gpu.functions import INDEX_INSTRUCTIONS, index_instructions, instructions_per_work
from meshcast.estimate.gpu.machine import THREADS_PER_SM, WARP, GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.picks import picked_bytes
from meshcast.estimate.rates import catalogue_key
from meshcast.lower import SCANNED, Kernel, Recency, short_name
from meshcast.workload import Indexed, element_bytes, element_work

BLOCK = 128
UNROLL = 4
MOST_UNROLLED = 10  # pieces up to which other loops take neighbours at once (`kMaxConcatArgumentsForUnrolling`)
MOST_JOINED = 4  # pieces that a loop of their own joins (openxla/xla, `UseConcatenateFusion`)
TILED_WAITS = 2  # of every operand that goes through tiles: its load, and the exchange in shared memory
SCALARS = 64  # bytes up to which operands are parameters of a loop, held by constant caches
TILE_SIDE = 32  # elements of a block that turns rows into columns
PACKED_SIDE = 64  # bytes of one whose elements are packed into words
_SUMMED = frozenset({"reduce", "reduce_window", "dot_general", "dot"})


def output_elements(kernel: Kernel) -> float:
    """Elements of the result; by the arithmetic's type for updates, which write a part of it."""
    return float(kernel.elements or kernel.written_bytes / element_bytes(kernel.dtype))


def blocks(elements: float, machine: GpuMachine) -> float:
    """Thread blocks of a loop over `elements`: a thread takes up to four once every thread of the GPU has one.

    `blocks = elements / (128 u)`, `u = min(4, max(1, elements / threads))`: growing with elements and shrinking with SMs. Numbers
    that four does not divide are taken by twos or one by one (XLA's `ComputeLoopFusionConfig`); so is a number that is no
    whole one, such as what rows divided among groups and multiplied by them again may leave.
    """
    return elements / (BLOCK * unrolled(elements, machine))


def unrolled(elements: float, machine: GpuMachine) -> float:
    """Elements that a thread of a loop takes."""
    return smaller(float(even_factor(elements)), larger(1.0, elements / (THREADS_PER_SM * machine.sms)))


def even_factor(elements: float) -> int:
    """Neighbours that a thread may take at once: four, two where four does not divide the result, else one."""
    return next((factor for factor in (UNROLL, 2) if not elements % factor), 1)


def joining_blocks(elements: float, pieces: tuple[int, ...], machine: GpuMachine) -> float:
    """Thread blocks of a loop that joins up to four pieces: it goes over the largest one, and does each of them on the way.

    A thread takes as many neighbours of every piece as divide all of their sizes along the joined dimension (openxla/xla,
    `ComputeUnrollFactor` in the emitter of concatenations): a border of 1 or 3 beside 1024 leaves one at a time. More pieces, or
    several results, run as other loops do: neighbours that lie in different pieces, each behind its branch, are as good as one by
    one, and of many pieces a thread takes one (`MayPreventVectorization`).

    Args:
        elements: Of the result.
        pieces: Up to four by their sizes along the joined dimension, more by the elements that follow each other of each.
        machine: The GPU.
    """
    if len(pieces) > MOST_UNROLLED:
        return elements / BLOCK
    if len(pieces) > MOST_JOINED:
        return elements / (BLOCK * min(unrolled(elements, machine), math.gcd(UNROLL, *pieces)))
    if not pieces[1:]:
        return blocks(elements, machine)
    largest = elements * max(pieces) / sum(pieces)
    return largest / (BLOCK * min(unrolled(largest, machine), math.gcd(UNROLL, *pieces)))


def joined_pieces(kernel: Kernel) -> tuple[int, ...]:
    """What `joining_blocks` asks for."""
    if len(kernel.pieces) <= MOST_JOINED:
        return kernel.pieces
    dim = next((dim for dim, size in enumerate(kernel.shape) if size == sum(kernel.pieces)), len(kernel.shape) - 1)
    inner = math.prod(kernel.shape[dim + 1 :])
    return tuple(piece * inner for piece in kernel.pieces)


def instructions(kernel: Kernel, machine: GpuMachine, plain: float | None = None) -> float:
    """Thread instructions of a fusion's arithmetic, in f32 lanes: f64 counts for the lanes the GPU lacks.

    `plain` are those of a FLOP that is no function: a loop fusion's, by default.
    """
    p, vector = machine.parameters, machine.device.vector_flops
    per_flop, per_function = instructions_per_work(kernel.ops, plain or p.loop_instructions, p.loop_transcendental)
    slower = vector["f32"] / vector.get("f64", vector["f32"] / 64) if catalogue_key(kernel.dtype) == "f64" else 1.0
    return slower * (per_flop * kernel.vector_flops + per_function * kernel.transcendentals)


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDemand:
    """What a loop asks of a GPU, whatever its rates are.

    Attributes:
        elements: Results.
        read: Bytes.
        written: Bytes.
        issued: Thread instructions.
        bounded: Whether a block per 512 results has to be started.
        recency: What was moved since the last use of those bytes.
        cycles: That one thread needs for an element, each instruction and load waiting for the last.
        finding: Thread instructions that find places and compute no number.
        pieces: Sizes of what its results are joined of.
        fetched: Bytes of whole sectors that its threads fetch; nothing where those are what is read.
    """

    elements: float
    read: float
    written: float
    issued: float
    bounded: bool
    recency: Recency | None
    cycles: float
    finding: float
    pieces: tuple[int, ...] = ()
    fetched: float = 0.0


def loop(
    elements: float, read: float, written: float, issued: float, machine: GpuMachine, *, bounded: bool = True,
    recency: Recency | None = None, chained: float | None = None, finding: float = 0.0, waits: int = 0,
) -> GpuWork:  # fmt: skip
    """A loop over `elements` results.

    Args:
        elements: Results.
        read: Bytes.
        written: Bytes.
        issued: Thread instructions.
        machine: The GPU.
        bounded: Whether a block per 512 results has to be started; not for copies.
        recency: What was moved since the last use of those bytes.
        chained: Cycles that one thread needs for an element, each instruction waiting for the last; by default those of its
            instructions.
        finding: Thread instructions that find places and compute no number.
        waits: Loads that a thread waits for, one after the other.
    """
    return looped(
        demanded(
            elements, read, written, issued, machine, bounded=bounded, recency=recency, chained=chained, finding=finding,
            waits=waits,
        ),
        machine,
    )  # fmt: skip


def demanded(
    elements: float, read: float, written: float, issued: float, machine: GpuMachine, *, bounded: bool = True,
    recency: Recency | None = None, chained: float | None = None, finding: float = 0.0, waits: int = 0,
    pieces: tuple[int, ...] = (), fetched: float = 0.0,
) -> LoopDemand:  # fmt: skip
    """What a loop asks for; arguments are those of `loop` and of `LoopDemand`."""
    p = machine.parameters
    waited = p.chain_cycles * (issued + finding) / max(1.0, elements) if chained is None else chained
    waited += p.wait_cycles * waits
    return LoopDemand(
        elements=elements, read=read, written=written, issued=issued, bounded=bounded, recency=recency, cycles=waited,
        finding=finding, pieces=pieces, fetched=fetched,
    )  # fmt: skip


def looped(demand: LoopDemand, machine: GpuMachine) -> GpuWork:
    """A loop on a GPU."""
    issued, finding = demand.issued, demand.finding
    chain = demand.cycles / machine.clock
    moved = traffic(demand.read, demand.written, machine, recency=demand.recency)
    launched = joining_blocks(demand.elements, demand.pieces, machine) if demand.bounded else 0.0
    sectors = demand.fetched / (machine.cache_bandwidth * machine.parameters.sector_share)
    started = launched / machine.block_rate
    found = finding / machine.instruction_rate
    compute = issued / machine.instruction_rate + found
    memory = larger(moved.seconds, sectors)
    time = machine.launch + machine.overlapped(memory, started, compute, chain)
    terms = moved.terms
    if machine.explaining:
        terms += machine.named(
            ("an element's instructions one after the other", "chain", chain, "s"),
            ("fetching whole sectors from L2", "sectors", sectors, "s"),
            ("thread blocks", "n", launched, ""),
            ("blocks started per second", "R", machine.block_rate, "1/s"),
            ("starting blocks", "start = n/R", started, "s"),
            *machine.issuing(issued + finding, compute),
            ("launch", "launch", machine.launch, "s"),
            ("norm of what overlaps", "p", machine.parameters.overlap, ""),
        )
    return GpuWork(
        time=time,
        compute=largest((compute, started, chain)),
        computing=compute - found,
        fixed=machine.launch,
        memory=memory,
        dram_bytes=moved.dram_bytes,
        instructions=issued + finding,
        formula="t = launch + |max(mem, sectors), start, issue, chain|_p",
        terms=terms,
    )


def loop_fusion(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """An elementwise fusion, or any movement of data in one pass; what it asks for is worked out once for all rates.

    Rows that are picked come from memory as often as L2 has lost them, whether the pick stands alone or not.
    """
    found = machine.loops.get(kernel.cost_key)
    if found is None:
        found = machine.loops[kernel.cost_key] = loop_demand(kernel, machine)
    if isinstance(kernel.geometry, Indexed):
        found = replace(found, read=larger(found.read, picked_bytes(kernel.geometry, kernel.written_bytes, machine)))
    return looped(found, machine)


def loop_demand(kernel: Kernel, machine: GpuMachine) -> LoopDemand:
    """What an elementwise fusion asks for.

    Sums in it (reductions, windows, products of few elements) are loops of one thread, a load and its address a step. A
    framework's own code is none of XLA's loops: how it starts blocks, shares out sums and finds places is in the share of the
    memory's rate that it gets (`Kernel.code`). A last transpose goes through tiles in shared memory: results find their places on
    both sides, and a block's few warps wait for each operand in turn.
    """
    p = machine.parameters
    if kernel.code is not None:
        return demanded(
            output_elements(kernel), kernel.read_bytes, kernel.written_bytes, instructions(kernel, machine), machine,
            bounded=False, recency=kernel.recency, chained=0.0,
        )  # fmt: skip
    copied = "copy" in kernel.flags and "joined" not in kernel.flags  # which the block rate does not bound
    elements, read, written = (
        output_elements(kernel),
        max(kernel.read_bytes, kernel.touched_bytes),
        kernel.written_bytes,
    )
    issued, chained = 0.0 if copied else instructions(kernel, machine), None
    finding = 0.0 if copied else found_elements(kernel, elements) * index_instructions(kernel.ops)
    waits = 0 if copied else waited_loads(kernel)
    if "tiles" in kernel.flags:
        places = elements * len(kernel.writes) * (p.tiled_shifted if _shifted(kernel.shape) else p.tiled_found)
        finding += issued * (1 / p.tiled_issue - 1) + places / p.tiled_issue
        waits = max(waits, TILED_WAITS * sum(size > SCALARS for size in kernel.operand_bytes))
    if share := summed_share(kernel.ops):
        steps = kernel.vector_flops * share
        if "prefix" in kernel.flags:  # each result goes over a window
            steps = larger(steps, SCANNED * elements)
        issued += steps * p.step_instructions
        chained = p.step_cycles * steps / max(1.0, elements)
    if swaps(kernel.ops) and kernel.shape:
        lanes = min(WARP, elements / kernel.shape[-1])
        chained = kernel.shape[-1] * (p.swap_cycles + p.swap_lane_cycles * lanes)
    return demanded(
        elements,
        read,
        written,
        issued,
        machine,
        bounded=not copied,
        recency=kernel.recency,
        chained=chained,
        finding=finding,
        waits=waits,
        pieces=joined_pieces(kernel),
        fetched=kernel.fetched_bytes,
    )


def _shifted(shape: tuple[int, ...]) -> bool:
    """Whether places in a result are found by shifts and masks, a few instructions: all of its sides are powers of two.

    Others take a division by each side (a multiplication, shifts and a difference).
    """
    return bool(shape) and all(side & (side - 1) == 0 for side in shape)


def waited_loads(kernel: Kernel) -> int:
    """Loads of a thread that wait for each other: its operands together, and what is behind each further branch.

    Every join and border is a branch, and what lies behind it is loaded when its turn comes: a scan that is written as slices and
    pads has dozens of them in one fusion. Where nothing else ran in between (no recency) the first load hides behind the launch,
    as it did when launches were measured.
    """
    first = kernel.recency is not None and kernel.read_bytes > SCALARS
    return first + max(0, branches(kernel.ops) - 1)


@functools.lru_cache(maxsize=4096)
def swaps(ops: tuple[str, ...]) -> bool:
    """Whether a kernel makes permutations of an LU factorisation's pivots: a thread a matrix, one swap after the other.

    So jaxlib's kernel does it (`LuPivotsToPermutationKernel`); threads of a warp visit as many lines for every swap.
    """
    return any(name.endswith("lu_pivots_to_permutation") for name in ops)


@functools.lru_cache(maxsize=4096)
def branches(ops: tuple[str, ...]) -> int:
    """Joins and borders among a fusion's ops."""
    return sum(short_name(name) in INDEX_INSTRUCTIONS for name in ops)


def found_elements(kernel: Kernel, elements: float) -> float:
    """Elements that an op of the fusion has on average: those of its arithmetic, which may be a small part of the result.

    What is joined and then written into a part of a cache is as small as that part; the rest of the cache is copied.
    """
    counted = counted_flops(kernel.ops)
    summed = kernel.vector_flops * summed_share(kernel.ops)  # what threads go over for their results is found likewise
    return min(max(elements, summed), kernel.vector_flops / counted) if counted and kernel.vector_flops else elements


@functools.lru_cache(maxsize=4096)
def counted_flops(ops: tuple[str, ...]) -> float:
    """FLOPs of a fusion's ops for one element."""
    return sum(work.flops for name in ops if (work := element_work(name)) is not None)


@functools.lru_cache(maxsize=4096)
def summed_share(ops: tuple[str, ...]) -> float:
    """The share of a fusion's arithmetic that adds up what a thread goes over for one element of its own; 0 where none does."""
    summed = sum(short_name(name) in _SUMMED for name in ops)
    return summed / (summed + counted_flops(ops)) if summed else 0.0


def tile_elements(width: float) -> float:
    """Elements that a block turns: 32 x 32, or where words of 4 bytes hold several of them, sides of 64 bytes.

    openxla/xla, `TransposeFusion` and `PackedTranspose`.
    """
    return (PACKED_SIDE / width) ** 2 if width <= 1 else TILE_SIDE**2


def transpose(
    elements: float, width: float, machine: GpuMachine, recency: Recency | None = None, *, looped: bool = False
) -> GpuWork:
    """A transpose through tiles in shared memory; elements of a byte and less are packed into words there, one by one.

    Args:
        elements: So many.
        width: Bytes of one.
        machine: The GPU.
        recency: What is left of it in caches.
        looped: Whether it is a plain loop, element by element: what XLA's autotuner puts before a library's product, and what
            elements that share bytes take where a matrix does not fill tiles of them.
    """
    p = machine.parameters
    loss = p.narrow_transpose_loss if width <= 1 else p.transpose_loss
    moved = traffic(elements * width, elements * width, machine, efficiency=1 - loss, recency=recency)
    tiled = width <= 1 and not looped
    count = max(1.0, elements / tile_elements(width)) if tiled else blocks(elements, machine)
    started = count / machine.block_rate
    rate = p.byte_transpose if looped else p.packed_transpose
    single = elements / (rate * machine.sms * machine.clock) if width <= 1 else 0.0
    chain = p.wait_cycles / machine.clock if recency is not None else 0.0
    if tiled:
        chain += p.packed_tile_cycles * tile_elements(width) / machine.clock
    time = machine.launch + machine.overlapped(moved.seconds, started, single, chain)
    return GpuWork(
        time=time,
        compute=largest((started, single, chain)),
        computing=0.0,
        fixed=machine.launch,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        formula="t = launch + |mem, start, single, chain|_p",
        terms=(
            *moved.terms,
            *machine.named(
                ("starting blocks", "start", started, "s"),
                ("elements of a byte one by one", "single", single, "s"),
                ("a tile's load", "chain", chain, "s"),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", p.overlap, ""),
            ),
        ),
    )
