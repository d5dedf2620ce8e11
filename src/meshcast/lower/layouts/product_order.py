"""Transposed results of products, which lie as the product wrote them.

To XLA's layout assignment a transpose behind a product is another name for the same bytes, and so is arithmetic on it. A
softmax over such scores (decoding, where JAX multiplies keys by queries and transposes the result) reduces along columns
then: as two reductions and a pass, where rows would be one kernel. But where the transpose changes rows for columns and nobody
else reads the product, XLA swaps the product's operands (algebraic simplifier, transpose(dot(a, b)) = dot(b, a)), and rows lie
together. Where anything else reads the values, they are written
in their own order as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from meshcast.workload import Gemm, Op, OpKind, Reduction, Tensor


def with_products_order(
    ops: Sequence[Op], kept: Set[int], buffer: dict[int, int], views: dict[int, Op], tensors: Sequence[Tensor]
) -> list[Op]:
    """The ops without such transposes, and with reductions along the dimensions that lie so in memory.

    Args:
        ops: The ops of a block, in order, without views.
        kept: Values that are needed after the block.
        buffer: What a view's value shows; gets the transposes that are left out.
        views: The ops whose results are views; gets those that rename dimensions, so that how they lie is known behind them.
        tensors: Types of all values.
    """
    products = {value: op for op in ops if op.cost.kind is OpKind.GEMM for value in op.results}
    turned = [
        op for op in ops
        if op.cost.kind is OpKind.TRANSPOSE and op.cost.orders and buffer.get(op.operands[0], op.operands[0]) in products
    ]  # fmt: skip
    if not turned:
        return list(ops)
    readers: dict[int, list[tuple[Op, int]]] = {}
    for op in ops:
        for value in op.operands:
            readers.setdefault(buffer.get(value, value), []).append((op, value))
    needed = {buffer.get(value, value) for value in kept} | set(kept)
    gone: set[int] = set()
    along: dict[int, Reduction] = {}  # a reduction's result -> what it reduces, as it lies
    for op in turned:
        product = products[buffer.get(op.operands[0], op.operands[0])]
        found = reductions_behind(op.results[0], op.cost.orders[0], readers, needed, tensors)
        if found:
            gone.add(op.results[0])
            buffer[op.results[0]] = buffer.get(op.operands[0], op.operands[0])
            if not _swaps_operands(op, product, readers, needed, tensors):
                along |= found
                views[op.results[0]] = op
    if gone:  # what was a view of a transpose is one of the product
        buffer.update({view: buffer[shown] for view, shown in buffer.items() if shown in gone})
    return [_along(op, along) for op in ops if not gone.intersection(op.results)]


def _swaps_operands(
    transpose: Op,
    product: Op,
    readers: Mapping[int, Sequence[tuple[Op, int]]],
    needed: Set[int],
    tensors: Sequence[Tensor],
) -> bool:
    """Whether a transpose is the product of its operands the other way round: all rows behind all columns, for it alone."""
    value, geometry, order = product.results[0], product.cost.geometry, tuple(transpose.cost.orders[0])
    if not isinstance(geometry, Gemm) or value in needed or len(readers.get(value, ())) != 1:
        return False
    if transpose.operands[0] != value:
        return False  # reshaped in between
    shape = tensors[transpose.operands[0]].shape
    if math.prod(shape) != geometry.batch * geometry.m * geometry.n:
        return False
    batches = next((dim for dim, place in enumerate(order) if dim != place), len(order))
    first = order[batches]  # the first dimension of the columns
    swapped = (*range(batches), *range(first, len(order)), *range(batches, first))
    return order == swapped and math.prod(shape[:batches]) == geometry.batch and math.prod(shape[first:]) == geometry.n


def _along(op: Op, along: Mapping[int, Reduction]) -> Op:
    geometry = along.get(op.results[0]) if op.results else None
    return op if geometry is None else replace(op, cost=replace(op.cost, geometry=geometry))


def reductions_behind(
    source: int,
    places: Sequence[int],
    readers: Mapping[int, Iterable[tuple[Op, int]]],
    needed: Set[int],
    tensors: Sequence[Tensor],
) -> dict[int, Reduction]:
    """The reductions behind a value, as it lies; none where anything else needs the values in order.

    Args:
        source: The value, whose order arithmetic on it keeps.
        places: Where in memory each of its dimensions lies.
        readers: Who reads a buffer, and as which value.
        needed: Values that are needed after the block.
        tensors: Types of all values.
    """
    shape = tensors[source].shape
    found: dict[int, Reduction] = {}
    waiting, seen = [source], {source}
    while waiting:
        value = waiting.pop()
        if value in needed:
            return {}
        for op, read in readers.get(value, ()):
            kind, geometry = op.cost.kind, op.cost.geometry
            if kind is OpKind.GEMM:
                continue  # takes either order, under whatever name
            if tensors[read].shape != shape:
                return {}
            if kind is OpKind.ELEMENTWISE and len(op.results) == 1 and tensors[op.results[0]].shape == shape:
                if op.results[0] not in seen:
                    seen.add(op.results[0])
                    waiting.append(op.results[0])
            elif kind is OpKind.REDUCE and isinstance(geometry, Reduction) and len(op.results) == 1:
                found[op.results[0]] = _as_it_lies(geometry, places)
            else:
                return {}
    return found


def _as_it_lies(geometry: Reduction, permutation: Sequence[int]) -> Reduction:
    """A reduction of transposed values on those before: dimension i of the result was `permutation[i]`."""
    before = [0] * len(permutation)
    for after, dim in enumerate(permutation):
        before[dim] = geometry.shape[after]
    return Reduction(shape=tuple(before), dims=tuple(sorted(permutation[dim] for dim in geometry.dims)))
