"""Products that write their result transposed: `transpose(dot(a, b)) = dot(b, a)`.

Where all of a product's columns come before its rows in the transpose that alone reads it, XLA:GPU swaps the operands (the
algebraic simplifier; of results with several dimensions layout assignment, `DotCanSupportShapeWithLayout`): nothing is moved.
Layers that JAX maps over a batch (`vmap` of a matrix by a vector) are written so. Products of a batch are left alone: their
results keep the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from meshcast.workload import Gemm, Op, OpKind


def with_swapped_products(ops: Sequence[Op], kept: Set[int]) -> list[Op]:
    """The ops without such transposes: their products write what they did.

    Args:
        ops: The ops of a block, in order, without views.
        kept: Values that are needed after the block, under any name.
    """
    products = {op.results[0]: op for op in ops if op.cost.kind is OpKind.GEMM and _is_plain(op)}
    turned = {
        op.operands[0]: op
        for op in ops
        if op.cost.kind is OpKind.TRANSPOSE and op.operands[0] in products and _swaps(products[op.operands[0]], op)
    }
    if not turned:
        return list(ops)
    readers = dict.fromkeys(turned, 0)
    for op in ops:
        for value in op.operands:
            if value in readers:
                readers[value] += 1
    alone = {value for value, count in readers.items() if count == 1 and value not in kept}
    gone = {turned[value].results[0] for value in alone}
    made: list[Op] = []
    for op in ops:
        if op.results and op.results[0] in alone:
            made.append(_swapped(op, turned[op.results[0]]))
        elif not op.results or op.results[0] not in gone:
            made.append(op)
    return made


def _is_plain(op: Op) -> bool:
    """Whether a product has two operands and no batch."""
    return (
        len(op.operands) == 2 and bool(op.cost.parts) and not op.cost.parts[0][0] and isinstance(op.cost.geometry, Gemm)
    )


def _swaps(product: Op, transpose: Op) -> bool:
    """Whether a transpose has all of a product's columns before its rows."""
    (_, rows, _), (_, columns, _) = product.cost.parts
    order = tuple(range(len(rows), len(rows) + len(columns))) + tuple(range(len(rows)))
    return bool(transpose.cost.orders) and tuple(transpose.cost.orders[0]) == order


def _swapped(product: Op, transpose: Op) -> Op:
    """The product of its operands the other way round, which writes what the transpose has written."""
    cost = product.cost
    assert isinstance(cost.geometry, Gemm)
    cost = replace(
        cost,
        geometry=swapped_sides(cost.geometry),
        operand_bytes=cost.operand_bytes[::-1],
        orders=cost.orders[::-1],
        parts=cost.parts[::-1],
    )
    return replace(product, cost=cost, operands=product.operands[::-1], results=transpose.results, equal=())


def swapped_sides(shape: Gemm) -> Gemm:
    """A product with its operands the other way round."""
    return replace(
        shape,
        m=shape.n,
        n=shape.m,
        lhs_dtype=shape.rhs_dtype,
        rhs_dtype=shape.lhs_dtype,
        lhs_contracting_minor=shape.rhs_contracting_minor,
        rhs_contracting_minor=shape.lhs_contracting_minor,
    )
