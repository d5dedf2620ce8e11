"""What XLA:GPU's cost model takes a kernel's time to be.

After gpu_performance_model_base.cc (openxla/xla, August 2026): `launch + m + c - 0.95 min(c, m)`, a launch of 1 us, bytes at the
memory's rate, and of arithmetic and bytes what does not hide behind the other. Of an array that is loaded again what its size
exceeds comes from a cache: constants and single elements that are spread over others, vectors over the columns of a matrix. A
launch of few blocks has few lanes, and no more than a transaction a cycle for each of them (`reduction_grids`).

Cycles an element are those that XLA measured on an H100 (hlo_op_profiles_data.h), 3 where it knows none. Clock, lanes and memory
rate are a Hopper's: a lowering knows the kind of its device alone, and what is decided goes by ratios of times that hardly
differ between generations. `priority_queue` decides by these times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from meshcast.lower.fusion.reduction_grids import CORES, LaunchGrid, reduction_grid
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
_L2_BYTES, _L1_BYTES = 50 * 1024 * 1024, 132 * 256 * 1024
_L2_SPEEDUP = 2.5
_CACHE_SPEEDUP = 2.5 * 8  # kL2CacheSpeedup and kL1CacheSpeedup
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
_SUMMING = frozenset({"reduce", "reduce_window"})  # by the op that they apply, a sum mostly
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
    name = "add" if name in _SUMMING else name
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


Rates = tuple[float, float, float]  # cycles a second, bytes a second from memory, and from caches


def root_rates(
    op: Op, space: int, least: Callable[[int], int], tensors: Sequence[Tensor], *, narrow: bool = False
) -> Rates:
    """Cycles and bytes a second, from memory and from caches, of the kernel that an op is the root of.

    What is spread from smaller arrays has no order in memory of its own, and is given the one that makes a reduction of it
    go along rows (GpuLayoutAssignment::PropagateReductionLayoutToOperand).

    Args:
        op: The root, or the reduction that its kernel is made for.
        space: Elements that the kernel runs over.
        least: How many elements it takes to have a value.
        tensors: Types of all values.
        narrow: Whether the kernel reads elements of less than four bytes.
    """
    geometry = op.cost.geometry
    if op.cost.kind is OpKind.REDUCE and isinstance(geometry, Reduction) and geometry.dims:
        reduced = op.operands[0]
        return rates_of(
            reduction_grid(geometry, by_rows=2 * least(reduced) <= tensors[reduced].elements, narrow=narrow)
        )
    return loop_rates(space)


def rates_of(grid: LaunchGrid) -> Rates:
    """Cycles and bytes a second of a launch, from memory and from caches.

    A block has a core, and loads no more than one transaction a cycle.
    """
    lanes = min(grid.threads, _LANES_PER_CORE) * min(grid.blocks, CORES)
    from_memory = min(BYTES_PER_S, grid.blocks * _CLOCK * _TRANSACTION)
    return _CYCLES_PER_S * lanes, from_memory, cached_rate(grid.blocks)


def loop_rates(elements: int) -> Rates:
    """The same of a pass over so many elements: each has a thread."""
    blocks = math.ceil(elements / _LANES_PER_CORE)
    return arithmetic_rate(elements), min(BYTES_PER_S, blocks * _CLOCK * _TRANSACTION), cached_rate(blocks)


def cached_rate(blocks: int) -> float:
    """Bytes a second that so many blocks load from the caches of their cores."""
    return min(_CACHE_SPEEDUP * BYTES_PER_S, blocks * _CLOCK * _TRANSACTION)


def arithmetic_rate(elements: int) -> float:
    """Cycles a second of a kernel over so many elements: each has a lane, while there are lanes."""
    lanes = _LANES if elements > _LANES else elements or 1
    return _CYCLES_PER_S * lanes


def kernel_seconds(computing: float, moving: float) -> float:
    """Of a kernel without its launch, which hides arithmetic behind its memory or the other way round."""
    return computing + moving - OVERLAP * min(computing, moving)


def again_rate(size: float, cached_per_s: float, from_memory_per_s: float) -> float:
    """Bytes a second of what is loaded again of an array of so many bytes (ReadTimeWithDRAMHeuristic)."""
    if size < _L1_BYTES:
        return cached_per_s
    return min(_L2_SPEEDUP * BYTES_PER_S, cached_per_s) if size < _L2_BYTES else from_memory_per_s
