"""Transposed results of products, which lie as the product wrote them.

To XLA's layout assignment a transpose behind a product is another name for the same bytes, and so is arithmetic on it. A
softmax over such scores (decoding, where JAX multiplies keys by queries and transposes the result) reduces along columns
then: as two reductions and a pass, where rows would be one kernel. Where anything else reads the values, they are written
in their own order as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from meshcast.workload import Op, OpKind, Reduction, Tensor


def with_products_order(
    ops: Sequence[Op], kept: Set[int], buffer: dict[int, int], tensors: Sequence[Tensor]
) -> list[Op]:
    """The ops without such transposes, and with reductions along the dimensions that lie so in memory.

    Args:
        ops: The ops of a block, in order, without views.
        kept: Values that are needed after the block.
        buffer: What a view's value shows; gets the transposes that are left out.
        tensors: Types of all values.
    """
    products = {value for op in ops if op.cost.kind is OpKind.GEMM for value in op.results}
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
        found = _reductions(op, readers, needed, tensors)
        if found:
            gone.add(op.results[0])
            buffer[op.results[0]] = buffer.get(op.operands[0], op.operands[0])
            along |= found
    return [_along(op, along) for op in ops if not gone.intersection(op.results)]


def _along(op: Op, along: Mapping[int, Reduction]) -> Op:
    geometry = along.get(op.results[0]) if op.results else None
    return op if geometry is None else replace(op, cost=replace(op.cost, geometry=geometry))


def _reductions(
    transpose: Op, readers: Mapping[int, Iterable[tuple[Op, int]]], needed: Set[int], tensors: Sequence[Tensor]
) -> dict[int, Reduction]:
    """The reductions behind a transpose, as they are without it; none where anything else needs the values in order."""
    shape = tensors[transpose.results[0]].shape
    found: dict[int, Reduction] = {}
    waiting, seen = [transpose.results[0]], {transpose.results[0]}
    while waiting:
        value = waiting.pop()
        if value in needed:
            return {}
        for op, read in readers.get(value, ()):
            kind, geometry = op.cost.kind, op.cost.geometry
            if tensors[read].shape != shape:
                return {}
            if kind is OpKind.ELEMENTWISE and len(op.results) == 1 and tensors[op.results[0]].shape == shape:
                if op.results[0] not in seen:
                    seen.add(op.results[0])
                    waiting.append(op.results[0])
            elif kind is OpKind.REDUCE and isinstance(geometry, Reduction) and len(op.results) == 1:
                found[op.results[0]] = _as_it_lies(geometry, transpose.cost.orders[0])
            elif kind is not OpKind.GEMM:
                return {}
    return found


def _as_it_lies(geometry: Reduction, permutation: Sequence[int]) -> Reduction:
    """A reduction of transposed values on those before: dimension i of the result was `permutation[i]`."""
    before = [0] * len(permutation)
    for after, dim in enumerate(permutation):
        before[dim] = geometry.shape[after]
    return Reduction(shape=tuple(before), dims=tuple(sorted(permutation[dim] for dim in geometry.dims)))
