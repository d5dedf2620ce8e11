"""Long reductions in two stages: XLA:GPU's tree_reduction_rewriter.

One block reduces a whole row, or a strip of columns, without atomics. Rows above 16,384 elements and columns above
4,096 are split as `n = k * (n / k)` with `k` near the square root of `n`, a power of two where one divides it: the
first stage leaves `k` partial results, the second one reduces those. Each result has a second stage of its own, however
many the first one computes together.

Very short reductions are loops inside the thread that computes the result, and fuse as any elementwise op does:
columns of fewer than 32 elements (more, the fewer columns there are) and rows shorter than a warp that do not divide it
(IsUnnestedReductionFasterThanElemental).
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from meshcast.lower.rewriting import ValueTypes, resized
from meshcast.workload import Op, OpKind, Reduction

ROW_LIMIT = 16384
COLUMN_LIMIT = 4096
# Fewer rows than this leave most of a GPU idle, and are split from half the limit on.
FEW_ROWS = 128
WARP = 32
# Elements, more than any device holds: up to here a divisor is looked for, among half a million numbers at the most.
LONGEST = 1 << 40
_ACCUMULATED = {"bf16": "f32", "f16": "f32"}


def split_reduction(op: Op, values: ValueTypes) -> list[Op]:
    """The op itself, its two stages, or the elementwise op that it is."""
    geometry = op.cost.geometry
    if op.cost.kind is not OpKind.REDUCE or not isinstance(geometry, Reduction) or not _contiguous(geometry.dims):
        return [op]
    first, last = min(geometry.dims), max(geometry.dims)
    kept, minor = math.prod(geometry.shape[:first]), math.prod(geometry.shape[last + 1 :])
    length = math.prod(geometry.shape[first : last + 1])
    if _elemental(length, minor):
        return (
            [replace(op, cost=replace(op.cost, kind=OpKind.ELEMENTWISE, geometry=None))]
            if len(op.results) == 1
            else [op]
        )
    if not _too_long(length, kept, minor):
        return [op]
    parts = _parts(length)
    shape = (kept, parts, math.ceil(length / parts), *((minor,) if minor > 1 else ()))
    partial_shape = (kept, parts, *shape[3:])
    partials = tuple(
        values.new(partial_shape, _ACCUMULATED.get(dtype := values.tensors[value].dtype, dtype)) for value in op.results
    )
    second_share = math.prod(partial_shape) / max(1, kept * length * minor)
    count = len(op.results)
    one = resized(op, values, operands=op.operands, results=partials, geometry=Reduction(shape=shape, dims=(2,)))
    two = resized(
        op,
        values,
        operands=(*partials, *op.operands[count:]),
        results=op.results,
        geometry=Reduction(shape=partial_shape, dims=(1,)),
    )
    cost = replace(
        two.cost,
        vector_flops=two.cost.vector_flops * second_share,
        transcendentals=two.cost.transcendentals * second_share,
    )
    return [one, replace(two, cost=cost)]


def is_identity(op: Op, before: int, after: int) -> bool:
    """Whether a reduction only drops dimensions of size 1: a reshape (XLA's algebraic simplifier)."""
    return op.cost.kind is OpKind.REDUCE and len(op.results) == 1 and before == after


def _elemental(length: int, minor: int) -> bool:
    if minor == 1:
        return length < WARP and WARP % length != 0
    narrow = ((WARP, None), (2 * WARP, WARP), (4 * WARP, 8), (8 * WARP, 3))
    return any(length < rows and (columns is None or minor < columns) for rows, columns in narrow)


def _too_long(length: int, kept: int, minor: int) -> bool:
    if minor > 1:
        return length > COLUMN_LIMIT
    return length > ROW_LIMIT or (kept < FEW_ROWS and length > ROW_LIMIT // 2)


@functools.lru_cache(maxsize=1024)
def _parts(length: int) -> int:
    """The number of partial results: in (sqrt(n) / 2, sqrt(n)], dividing n if any does, a power of two for choice.

    Nothing is searched above `LONGEST`, where the root itself divides n closely enough.
    """
    root = math.isqrt(length)
    power = 1 << (root.bit_length() - 1)
    if length % power == 0:
        return power
    if length > LONGEST:
        return root
    return next((k for k in range(root, root // 2, -1) if length % k == 0), root)


def _contiguous(dims: tuple[int, ...]) -> bool:
    return bool(dims) and max(dims) - min(dims) + 1 == len(set(dims))
