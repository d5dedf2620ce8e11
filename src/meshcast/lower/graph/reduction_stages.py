"""Reductions in several stages: XLA:GPU's reduction_splitter and tree_reduction_rewriter.

What is reduced over dimensions that do not lie together, with others kept on more than one side of them (a group norm's: pixels
and the channels of a group, but neither images nor groups), is reduced along the longest of them first, and along the others
after that, until each stage goes along neighbours alone. Rows that are added up across an outer dimension as well
(`[r, k, r]`) stay one stage, where a row is no shorter than a warp or divides it.

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

from meshcast.lower.value_types import ValueTypes, resized
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
    """The op itself, its stages, or the elementwise op that it is."""
    geometry = op.cost.geometry
    if op.cost.kind is not OpKind.REDUCE or not isinstance(geometry, Reduction) or not geometry.dims:
        return [op]
    if _contiguous(geometry.dims):
        return _along_neighbours(op, geometry, values)
    grouped = _grouped(geometry)
    if len(grouped.dims) == 1:
        return _along_neighbours(op, grouped, values)
    if len(op.results) != 1 or len(grouped.dims) == 0 or _rows_of_batches(grouped):
        return [op]
    longest = max(grouped.dims, key=lambda dim: grouped.shape[dim])
    rest = tuple([dim - (dim > longest) for dim in grouped.dims if dim != longest])
    left = (*grouped.shape[:longest], *grouped.shape[longest + 1 :])
    partial = values.new(left, values.tensors[op.results[0]].dtype)
    first, second = _stages(
        op, values, (partial,), Reduction(shape=grouped.shape, dims=(longest,)), Reduction(shape=left, dims=rest)
    )
    return [*split_reduction(first, values), *split_reduction(second, values)]


def _along_neighbours(op: Op, geometry: Reduction, values: ValueTypes) -> list[Op]:
    """The same of a reduction over dimensions that lie together."""
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
    return list(
        _stages(op, values, partials, Reduction(shape=shape, dims=(2,)), Reduction(shape=partial_shape, dims=(1,)))
    )


def _stages(
    op: Op, values: ValueTypes, partials: tuple[int, ...], first: Reduction, second: Reduction
) -> tuple[Op, Op]:
    """A reduction as one that leaves `partials` and one of those: the second's share of the work is theirs of all elements."""
    one = resized(op, values, operands=op.operands, results=partials, geometry=first)
    operands = (*partials, *op.operands[len(op.results) :])
    two = resized(op, values, operands=operands, results=op.results, geometry=second)
    share = math.prod(second.shape) / max(1, math.prod(first.shape))
    cost = replace(
        two.cost, vector_flops=two.cost.vector_flops * share, transcendentals=two.cost.transcendentals * share
    )
    return one, replace(two, cost=cost)


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


@functools.lru_cache(maxsize=1024)
def _grouped(geometry: Reduction) -> Reduction:
    """The same without dimensions of size 1, neighbours that go or stay together as one (reduction_dimension_grouper)."""
    shape: list[int] = []
    dims: list[int] = []
    before = None
    for dim, size in enumerate(geometry.shape):
        if size == 1:
            continue
        goes = dim in geometry.dims
        if goes is before:
            shape[-1] *= size
            continue
        if goes:
            dims.append(len(shape))
        shape.append(size)
        before = goes
    return Reduction(shape=tuple(shape), dims=tuple(dims))


def _rows_of_batches(grouped: Reduction) -> bool:
    """Whether one kernel reduces `[r, k, r]`: rows, over an outer dimension as well."""
    return grouped.dims == (0, 2) and len(grouped.shape) == 3 and not _elemental(grouped.shape[2], 1)


def _contiguous(dims: tuple[int, ...]) -> bool:
    return bool(dims) and max(dims) - min(dims) + 1 == len(set(dims))
