"""What XLA:GPU's cost model says about computing an op again: whether its kernel takes longer than what is repeated without it.

After priority_fusion.cc and gpu_performance_model_base.cc (openxla/xla, August 2026). A kernel's time is
`launch + m + c - 0.95 min(c, m)`: its launch of 1 us, its bytes at the memory's rate, and of its arithmetic what does not
hide behind them. An op that all of its readers take in saves its launch, its reads and writes and their reads of it; it costs
their reads of its operands, and its arithmetic once for every element that they ask for. Bytes are counted in full, though
XLA lets them hide behind arithmetic in turn: it decides while readers are still small. An op that is repeated brings along the
ops that lead to it alone, which XLA has fused with it by then. A single element that is spread over others is loaded for each of
them from a cache, by a kernel's blocks at their rate: 8 ns for each constant of a pass over up to 200,000 elements, which keeps
hashes of random numbers apart from what asks for them at several places, and microseconds in reductions of few blocks. So is an
array that is spread along further dimensions, a vector over the columns of the matrix that it is multiplied with.

Cycles an element are those that XLA measured on an H100 (hlo_op_profiles_data.h), 3 where it knows none. Clock, lanes and memory
rate are a Hopper's: a lowering knows the kind of its device alone, and what is decided goes by ratios of times that hardly
differ between generations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from meshcast.lower.coalescing import ORDERLY, Loaded
from meshcast.lower.constants import KnownValues
from meshcast.lower.growing import Growing
from meshcast.lower.reduction_grids import CORES, LaunchGrid, reduction_grid
from meshcast.lower.single_exits import NO_EXIT
from meshcast.workload import Op, OpKind, Reduction, Tensor

# Operands and results of one kernel, and copies of ops in its code (MaxOperandsAndOutputsPerFusion, kMaxIRSize).
MAX_VALUES = 96
MAX_COPIES = 10_000

LAUNCH_S = 1e-6
_LANES_PER_CORE = 128
_LANES = CORES * _LANES_PER_CORE
_CLOCK = 1.98e9
_CYCLES_PER_S = 2 * _CLOCK
_TRANSACTION = 32  # bytes
BYTES_PER_S = 4.8e12
_CACHE_SPEEDUP = 2.5 * 8  # kL2CacheSpeedup and kL1CacheSpeedup
_SPREAD_BYTES = 4.0  # of most of what is spread
MOST_SPREAD = 128  # single elements that are told apart: more are dear enough
SPREADING = 16  # times the elements that it reads a broadcast has, from which on it spreads them
PLAIN_CYCLES = 16.0  # of a few comparisons
_NONE: frozenset[int] = frozenset()
OVERLAP = 0.95

_DEFAULT_CYCLES = 3.0
_SLOW_CYCLES = 100.0  # of a function that XLA expands and that is not listed
# Functions that XLA measured on an H100 (sm_90), by the type of their result.
_CYCLES: dict[str, dict[str, int]] = {
    "add": {"f32": 7, "f16": 7, "f64": 15, "complex<f32>": 7, "complex<f64>": 15},
    "subtract": {"f32": 7, "f16": 7, "f64": 15, "complex<f32>": 7, "complex<f64>": 15},
    "multiply": {"f32": 3, "f16": 7, "f64": 15, "i8": 7, "i16": 7, "i64": 11, "complex<f32>": 79, "complex<f64>": 39},
    "divide": {
        "f32": 19, "f16": 43, "f64": 526, "i8": 356, "i16": 364, "i32": 297, "i64": 685, "ui8": 300, "ui16": 304, "ui32": 122,
        "ui64": 629, "complex<f32>": 498, "complex<f64>": 2280,
    },
    "exponential": {"f32": 79, "f16": 102, "f64": 376, "complex<f32>": 641, "complex<f64>": 1342},
    "exponential_minus_one": {"f32": 190, "f16": 217, "f64": 712, "complex<f32>": 2055, "complex<f64>": 1275},
    "log": {"f32": 166, "f16": 182, "f64": 815, "complex<f32>": 756, "complex<f64>": 2455},
    "log_plus_one": {"f32": 229, "f16": 245, "f64": 1259, "complex<f32>": 633, "complex<f64>": 2403},
    "rsqrt": {"f32": 75, "f16": 95, "f64": 277, "complex<f32>": 3148, "complex<f64>": 5500},
    "sqrt": {"f32": 75, "f16": 95, "f64": 332, "complex<f32>": 4344, "complex<f64>": 6636},
    "cbrt": {"f32": 178, "f16": 201, "f64": 586},
    "tanh": {"f32": 467, "f16": 502, "f64": 431, "complex<f32>": 2379, "complex<f64>": 4613},
    "power": {
        "f32": 510, "f16": 526, "f64": 2205, "i8": 122, "i16": 122, "i32": 71, "i64": 253, "ui8": 122, "ui16": 126, "ui32": 71,
        "ui64": 253, "complex<f32>": 5532, "complex<f64>": 8363,
    },
    "cosine": {"f32": 978, "f16": 997, "f64": 558, "complex<f32>": 2415, "complex<f64>": 1750},
    "sine": {"f32": 958, "f16": 993, "f64": 554, "complex<f32>": 2324, "complex<f64>": 1999},
    "atan2": {"f32": 431, "f16": 451, "f64": 930, "complex<f32>": 6462, "complex<f64>": 13131},
    "logistic": {"f32": 108, "f16": 155, "f64": 920},  # is expanded: 1 / (1 + exp(-x))
    "tan": {"f32": 1955, "f16": 2033, "f64": 1638},  # sine by cosine
    "erf": {},
}  # fmt: skip
_PLAIN = frozenset({"add", "subtract", "multiply", "divide"})
_NARROW = frozenset({"bf16", "f8E4M3FN", "f8E5M2", "f4E2M1FN"})  # computed in f32
# A join is a comparison and a branch; one along an inner dimension whose first piece is no multiple of a warp is made dear, so
# that nothing slow is computed behind it (GpuHloCostAnalysis::HandleConcatenate).
_JOIN_CYCLES, _UNEVEN_JOIN_CYCLES = 6.0, 400.0
_WARP = 32
_MOVING = frozenset(
    {OpKind.BROADCAST, OpKind.GENERATE, OpKind.SLICE, OpKind.MOVE, OpKind.TRANSPOSE, OpKind.GATHER, OpKind.VIEW}
)


def cycles_of(op: Op, tensors: Sequence[Tensor], *, by_constant: bool) -> float:
    """Cycles that an op takes for one element of its result; a division by a constant is a multiplication."""
    if op.cost.kind in _MOVING:
        return _joining(op, tensors) if op.cost.kind is OpKind.MOVE and op.name.endswith("concatenate") else 0.0
    name, dtype = op.name.rpartition(".")[2], op.cost.dtype
    by_type = _CYCLES.get("multiply" if by_constant and name == "divide" else name)
    if by_type is None:
        return _SLOW_CYCLES if op.cost.transcendentals else _DEFAULT_CYCLES
    return float(by_type.get("f32" if dtype in _NARROW else dtype, _DEFAULT_CYCLES))


def named_cycles(name: str, dtype: str) -> float | None:
    """Cycles that a function takes for one element; None of plain arithmetic."""
    by_type = _CYCLES.get(name) if name not in _PLAIN else None
    if by_type is None:
        return None
    return float(by_type.get("f32" if dtype in _NARROW else dtype, _DEFAULT_CYCLES))


def _joining(op: Op, tensors: Sequence[Tensor]) -> float:
    """Cycles for an element of a concatenation."""
    whole, first = tensors[op.results[0]].shape, tensors[op.operands[0]].shape
    along = next((dim for dim, (size, part) in enumerate(zip(whole, first, strict=False)) if size != part), 0)
    return _UNEVEN_JOIN_CYCLES if along and first[along] % _WARP else _JOIN_CYCLES


class Work(NamedTuple):
    """What it takes to have a value.

    Attributes:
        own: Cycles for each of its elements, of the op that makes it.
        chain: The same, with the ops that lead to it alone.
        read: Bytes that those ops and this one read.
        spread: Single elements, and arrays that are broadcast to `SPREADING` times their size or more, that those ops and this
            one take for each of theirs: constants, above all.
        own_spread: How many of these the op takes that makes it.
    """

    own: float
    chain: float
    read: float
    spread: frozenset[int] = frozenset()
    own_spread: int = 0


Reads = Sequence[tuple[int, int]]  # operands of an op, each with the bytes that it takes to have it


def work_of_values(
    members: Mapping[int, tuple[Op, Reads]],
    operands: Sequence[Sequence[int]],
    tensors: Sequence[Tensor],
    known: KnownValues,
    exits: Sequence[int],
) -> dict[int, Work]:
    """What it takes to have each value, with the ops that lead to it alone.

    `chain(v) = own(v) + sum(chain(u) min(1, n_u / n_v))` over the ops `u` that have `v` as their exit, of `n` elements each: of
    a slice only what is asked for, of the parts of a whole each its share.

    Args:
        members: A block's ops that may be fused and have one result, by place, with what they read.
        operands: Of all ops.
        tensors: Types of all values.
        known: Values that are known before a run, or are one element spread over all.
        exits: The single exit of each op (`single_exits`).
    """
    constants, splats = known.constants, known.splats
    splats = splats | _spread_arrays(members, tensors)
    found: dict[int, Work] = {}
    cycles: dict[tuple[int, str, bool], float] = {}  # by cost, which most ops of a long program share, and name
    # exit -> values that lead to it alone, each with what it takes to have it from memory
    behind: dict[int, list[tuple[int, dict[int, float]]]] = {}
    for index, (op, reads) in members.items():
        read_values, cost = operands[index], op.cost
        by_constant = len(read_values) == 2 and read_values[1] in constants
        kind = (id(cost), op.name, by_constant)
        own = cycles.get(kind)
        if own is None or (own >= _JOIN_CYCLES and cost.kind is OpKind.MOVE):  # a join's goes by its shape
            own = cycles[kind] = cycles_of(op, tensors, by_constant=by_constant)
        result = op.results[0]
        elements = tensors[result].elements
        chain = own
        read: dict[int, float] = dict(reads)
        leading = behind.pop(index, ())
        spread = _NONE
        if cost.kind is OpKind.ELEMENTWISE and not splats.isdisjoint(read_values):
            spread = splats.intersection(read_values)
        own_spread = len(spread)
        for value, outside in leading:
            size, before = tensors[value].elements, found[value]
            chain += before.chain if size >= elements else before.chain * size / elements
            if before.spread and len(spread) < MOST_SPREAD:
                spread = spread | before.spread if spread else before.spread
            if len(outside) > len(read):
                read, outside = outside, read
            for other, moved in outside.items():
                if moved > read.get(other, 0.0) or other not in read:
                    read[other] = moved
        for value, _ in leading:
            read.pop(value, None)
        found[result] = Work(own, chain, sum(read.values()), spread, own_spread)
        if exits[index] != NO_EXIT and result not in constants:
            behind.setdefault(exits[index], []).append((result, read))
    return found


def _spread_arrays(members: Mapping[int, tuple[Op, Reads]], tensors: Sequence[Tensor]) -> frozenset[int]:
    """Broadcasts of arrays to many times their size."""
    spread: set[int] = set()
    for op, _ in members.values():
        if op.cost.kind is OpKind.BROADCAST and len(op.operands) == 1:
            result = op.results[0]
            if SPREADING * tensors[op.operands[0]].elements <= tensors[result].elements:
                spread.add(result)
    return frozenset(spread)


# A fusion that would take an op in, how many of its elements the fusion asks for, and at how many places.
Repeating = tuple[Growing, int, int]


def takes_in(
    op: Op, reads: Reads, elements: int, work: Work, readers: Sequence[Repeating], loaded: Loaded = ORDERLY
) -> bool:
    """Whether an op is computed inside its readers; if so, they have grown by it.

    Args:
        op: The op, of one result.
        reads: Its operands, each with the bytes that it takes to have it.
        elements: Of its result.
        work: For each of them.
        readers: Fusions of the ops that read it.
        loaded: Bytes that these, and a kernel of its own, load for one that they need (`coalescing`).
    """
    evaluated = readers[0][1] if len(readers) == 1 else sum([asked for _, asked, _ in readers])
    read = 0
    for _, size in reads:
        read += size
    if evaluated > elements or _is_crowded(readers, elements):  # repeated, or all of it in few lanes
        cycles, behind = work.chain, max(0.0, work.read - read)  # what the chain reads besides
        spread = _SPREAD_BYTES * len(work.spread)  # loaded for an element
    else:
        cycles, behind, spread = work.own, 0.0, _SPREAD_BYTES * work.own_spread
    saved = ((read + behind) * loaded.alone + op.cost.written_bytes) / BYTES_PER_S
    if spread:
        saved += spread * elements / cached_rate(math.ceil(elements / _LANES_PER_CORE))
    # Such as a mask: kept in memory, all of its readers would read it whole.
    masks = len(readers) > 1 and work.chain <= PLAIN_CYCLES and SPREADING * (read + behind) <= op.cost.written_bytes
    extra = 0.0
    if cycles:
        seconds = elements * cycles / arithmetic_rate(elements)
        extra = OVERLAP * min(seconds, saved) - seconds
    result = op.results[0]
    grown: list[dict[int, float]] = []
    for fusion, asked, copies in readers:
        moved = fusion.moved
        more: dict[int, float] = {}
        share = asked / elements if asked < elements else 1.0
        for value, size in reads:
            part = size * share
            if part > moved.get(value, 0.0):
                more[value] = part
        if len(moved) + len(more) > MAX_VALUES or fusion.copies + copies > MAX_COPIES:
            return False
        if cycles:
            hidden, before = fusion.read / fusion.bytes_per_s + fusion.written / BYTES_PER_S, fusion.cycles
            seconds = (before + asked * cycles) / fusion.rate
            again = spread * asked / fusion.cached_per_s if spread else 0.0
            extra += seconds - OVERLAP * min(seconds, hidden + again)
            seconds = before / fusion.rate
            extra -= seconds - OVERLAP * min(seconds, hidden)
        less = moved.get(result, 0.0)
        if masks and less:
            less = max(less, op.cost.written_bytes * share)
        if more or behind:
            less -= sum([size - moved.get(value, 0.0) for value, size in more.items()]) + behind * share
        saved += less / fusion.bytes_per_s
        if loaded.inside > fusion.loaded:
            saved -= max(0.0, fusion.read - less) * (loaded.inside / fusion.loaded - 1.0) / fusion.bytes_per_s
        if spread:
            saved -= spread * asked / fusion.cached_per_s
        grown.append(more)
    if extra - saved > LAUNCH_S:
        return False
    for (fusion, asked, copies), more in zip(readers, grown, strict=True):
        fusion.grow(result, asked * work.own, copies, more)
        fusion.spoil(loaded.inside)
    return True


def _is_crowded(readers: Sequence[Repeating], elements: int) -> bool:
    """Whether a fusion that asks for an op has fewer lanes than a kernel of its own: what leads to it comes along by then."""
    alone = arithmetic_rate(elements)
    return any([2 * fusion.rate < alone for fusion, _, _ in readers])


def root_rates(
    op: Op, space: int, least: Callable[[int], int], tensors: Sequence[Tensor]
) -> tuple[float, float, float]:
    """Cycles and bytes a second, from memory and from caches, of the kernel that an op is the root of.

    What is spread from smaller arrays has no order in memory of its own, and is given the one that makes a reduction of it
    go along rows (GpuLayoutAssignment::PropagateReductionLayoutToOperand).

    Args:
        op: The root, or the reduction that its kernel is made for.
        space: Elements that the kernel runs over.
        least: How many elements it takes to have a value.
        tensors: Types of all values.
    """
    geometry = op.cost.geometry
    if op.cost.kind is OpKind.REDUCE and isinstance(geometry, Reduction) and geometry.dims:
        reduced = op.operands[0]
        return rates_of(reduction_grid(geometry, by_rows=2 * least(reduced) <= tensors[reduced].elements))
    return loop_rates(space)


def rates_of(grid: LaunchGrid) -> tuple[float, float, float]:
    """Cycles and bytes a second of a launch, from memory and from caches.

    A block has a core, and loads no more than one transaction a cycle.
    """
    lanes = min(grid.threads, _LANES_PER_CORE) * min(grid.blocks, CORES)
    from_memory = min(BYTES_PER_S, grid.blocks * _CLOCK * _TRANSACTION)
    return _CYCLES_PER_S * lanes, from_memory, cached_rate(grid.blocks)


def loop_rates(elements: int) -> tuple[float, float, float]:
    """The same of a pass over so many elements: each has a thread."""
    return arithmetic_rate(elements), BYTES_PER_S, cached_rate(math.ceil(elements / _LANES_PER_CORE))


def cached_rate(blocks: int) -> float:
    """Bytes a second that so many blocks load from the caches of their cores."""
    return min(_CACHE_SPEEDUP * BYTES_PER_S, blocks * _CLOCK * _TRANSACTION)


def arithmetic_rate(elements: int) -> float:
    """Cycles a second of a kernel over so many elements: each has a lane, while there are lanes."""
    lanes = _LANES if elements > _LANES else elements or 1
    return _CYCLES_PER_S * lanes
