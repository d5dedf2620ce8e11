"""How sums lie that XLA:GPU makes of products with vectors, and what that does to reductions of them.

A product with a vector becomes a multiplication and a reduction that read the matrix where it lies (`products.vector_products`),
and to XLA's layout assignment the sums lie as the dimensions that are left lie there: keys that are cached by position and then
by head give scores by position and then by head, whatever order the program names them in. A softmax over the positions goes
along columns then: no program for rows, but a reduction, a pass, a reduction and a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.layouts.product_order import reductions_behind
from meshcast.lower.products.vector_products import is_vector_product
from meshcast.workload import Gemm, Op, OpKind, Reduction, Tensor


def with_orders_of_sums(
    ops: Sequence[Op], kept: Set[int], buffer: Mapping[int, int], views: Mapping[int, Op], tensors: Sequence[Tensor]
) -> list[Op]:
    """The ops, with reductions of what products with vectors give along the dimensions that lie so in memory.

    Args:
        ops: The ops of a block, in order, without views, products with vectors among them.
        kept: Values that are needed after the block.
        buffer: What a view's value shows.
        views: The ops whose results are views.
        tensors: Types of all values.
    """
    turned = {value for op in ops if op.cost.kind is OpKind.TRANSPOSE for value in op.results}
    found: dict[int, Reduction] = {}
    needed: Set[int] = frozenset()  # values, and what those that are views show
    readers: dict[int, list[tuple[Op, int]]] = {}
    for op in ops:
        places = places_of_sums(op, views, turned, tensors)
        if not places:
            continue
        if not readers:
            for other in ops:
                for value in other.operands:
                    readers.setdefault(buffer.get(value, value), []).append((other, value))
            needed = {buffer.get(value, value) for value in kept} | kept
        found |= reductions_behind(op.results[0], places, readers, needed, tensors)
    if not found:
        return list(ops)
    return [
        replace(op, cost=replace(op.cost, geometry=found[op.results[0]]))
        if op.results and op.results[0] in found
        else op
        for op in ops
    ]


def places_of_sums(op: Op, views: Mapping[int, Op], turned: Set[int], tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where in memory each dimension of a product's result lies; nothing where they lie as they are written, or any way.

    Args:
        op: Any op.
        views: The ops whose results are views.
        turned: Results of transposes.
        tensors: Types of all values.
    """
    side = matrix_side(op)
    if side is None or lies_otherwise(op.operands[side], views, turned):
        return ()
    batch, own, _ = op.cost.parts[side]
    _, rest, _ = op.cost.parts[1 - side]
    beside: list[int | None] = [None] * len(rest)  # the vector's, of one element each
    dims = [*batch, *own, *beside] if side == 0 else [*batch, *beside, *own]
    # Dimensions of the result in the order in which they lie in memory, the vector's behind all others.
    lies = [math.inf if at is None else at for at in dims]
    order = sorted(range(len(dims)), key=lies.__getitem__)
    shape = tensors[op.results[0]].shape
    if len(shape) != len(dims):
        return ()
    long = [dim for dim in order if shape[dim] > 1]
    if long == sorted(long):
        return ()
    return tuple([order.index(dim) for dim in range(len(dims))])


def matrix_side(op: Op) -> int | None:
    """Which operand of a product with a vector is the matrix; None of other ops, and where nothing says how it lies."""
    shape = op.cost.geometry
    if not op.cost.parts or not is_vector_product(op) or not isinstance(shape, Gemm):
        return None
    if shape.k == 1 or min(shape.m, shape.n) > 1:
        return None
    return 1 if shape.n > 1 else 0


def lies_otherwise(value: int, views: Mapping[int, Op], turned: Set[int]) -> bool:
    """Whether a value is a name of one whose dimensions have another order."""
    while value in views:
        if views[value].cost.kind is OpKind.TRANSPOSE:
            return True
        value = views[value].operands[0]
    return value in turned
