"""Where XLA:GPU splits a product's K into parts that are added up afterwards.

A pass before autotuning decides (splitk_rewriter.cc), by a cost in units of its own: for `s` parts, tiles of 128 x 128
and `waves = max(1, tiles / slots)`, it weighs `max(flops of a tile * waves * c, bytes * m)` and, for `s > 1`, a launch and
the bytes of the sum, `l + (partial + result) * r`. The least cost wins. The weights, per generation, are XLA's own
(openxla/xla at 0c1ab89); so is that partial sums lie in the accumulator's type. Of the open ground truth's 71 plain
products all 69 that XLA keeps as products are split as this says.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from meshcast.workload import Gemm, element_bytes

SPLIT_TILE = 128
PARTS = tuple(1 << power for power in range(12))
LOADED_BYTES = 16  # that a part of K is a multiple of
ACCUMULATED_BYTES = 4  # f32 and i32; f64 has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWeights:
    """The weights of the rewriter's cost model, in its own scale: a tile's FLOP costs 100."""

    memory: float
    summed: float
    launch: float


_WEIGHTS = {
    "Hopper": SplitWeights(memory=0.194136, summed=193.1384, launch=4.36e7),
    "Blackwell": SplitWeights(memory=0.0848863, summed=189.711, launch=1.21563e8),
}
_OLDER = SplitWeights(memory=0.0666955, summed=467.815, launch=5.65307e7)
_FLOP = 100.0


def padded_length(shape: Gemm, parts: int) -> int:
    """K where it is split into equal parts of whole loads, to a multiple of which the rewriter pads it."""
    if parts == 1:
        return shape.k
    width = min(element_bytes(shape.lhs_dtype), element_bytes(shape.rhs_dtype))
    part = math.ceil(math.ceil(shape.k / parts) * width / LOADED_BYTES) * LOADED_BYTES / width
    return int(part * parts)


def padded_bytes(shape: Gemm, parts: int) -> int:
    """Bytes of the operands' copies where K is padded."""
    length = padded_length(shape, parts)
    if length == shape.k:
        return 0
    rows = shape.m * element_bytes(shape.lhs_dtype) + shape.n * element_bytes(shape.rhs_dtype)
    return int(shape.batch * length * rows)


def partial_bytes(shape: Gemm, parts: int) -> int:
    """Bytes of the partial results that wait to be added up."""
    return parts * shape.batch * shape.m * shape.n * _accumulated(shape) if parts > 1 else 0


@functools.lru_cache(maxsize=4096)
def split_parts(shape: Gemm, cores: int, architecture: str) -> int:
    """Into how many parts K is split on a GPU of `cores` SMs; 1: not at all."""
    if "i32" in (shape.lhs_dtype, shape.rhs_dtype) or not shape.batch * shape.m * shape.n * shape.k:
        return 1
    costs = [_cost(amounts, cores) for amounts in _amounts(shape, architecture)]
    return PARTS[costs.index(min(costs))]


def _cost(amounts: tuple[float, float, float, float], cores: int) -> float:
    area, flops, moved, summed = amounts
    waves = max(1.0, area / (cores * SPLIT_TILE * SPLIT_TILE))
    return max(flops * waves * _FLOP, moved) + summed


@functools.lru_cache(maxsize=1024)
def _amounts(shape: Gemm, architecture: str) -> tuple[tuple[float, float, float, float], ...]:
    """What the costs of all numbers of parts follow from on any number of SMs.

    Elements of all tiles, FLOPs of one, and what operands and results cost, and adding up the parts.
    """
    weights = _WEIGHTS.get(architecture, _OLDER)
    rows, columns = min(shape.m, SPLIT_TILE), min(shape.n, SPLIT_TILE)
    each = shape.batch * math.ceil(shape.m / SPLIT_TILE) * math.ceil(shape.n / SPLIT_TILE)
    result = shape.batch * shape.m * shape.n * element_bytes(shape.out_dtype)
    found: list[tuple[float, float, float, float]] = []
    for parts in PARTS:
        partial = partial_bytes(shape, parts)
        found.append(
            (
                parts * each * rows * columns,
                2 * rows * columns * math.ceil(shape.k / parts),
                (shape.operand_bytes + (partial or result)) * weights.memory,
                weights.launch + (partial + result) * weights.summed if partial else 0.0,
            )
        )
    return tuple(found)


def _accumulated(shape: Gemm) -> int:
    return 8 if shape.out_dtype == "f64" else ACCUMULATED_BYTES
