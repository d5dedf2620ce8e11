"""Reductions over dimensions along which all elements are the same: one element, a number of times, and no reduction.

XLA's algebraic simplifier replaces a sum over what is broadcast along all of the summed dimensions by a product with their number
(HandleReduce of algebraic_simplifier.cc), a maximum by the element itself; it moves broadcasts behind arithmetic before
(TryToSinkBroadcastAfterOpWithUniqueNonScalarOperand). Log densities of scalar parameters are full of them. Here such a reduction
is a slice: one element of each row, which whoever reads it computes on the way. Compiled by XLA of JAX 0.11.2: sums of constants,
of functions of a scalar and of a vector over the dimensions that it is repeated along are none of them kernels; sums over both
repeated and other dimensions stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshcast.lower.draft import BlockDraft
from meshcast.lower.value_types import ValueTypes, moved
from meshcast.workload import Op, OpKind, Reduction, Tensor

_NONE: frozenset[int] = frozenset()


def may_sum_spread(draft: BlockDraft) -> bool:
    """Whether a block has reductions, and broadcasts or constants that they may be of."""
    return OpKind.REDUCE in draft.kinds and not draft.kinds.isdisjoint((OpKind.BROADCAST, OpKind.GENERATE))


def sum_spread(draft: BlockDraft) -> None:
    """`without_sums_of_spread`."""
    draft.ops = without_sums_of_spread(draft.ops, draft.values)


def without_sums_of_spread(ops: Sequence[Op], values: ValueTypes) -> Sequence[Op]:
    """The ops with such reductions as slices; `ops` itself where there are none.

    Args:
        ops: A block's ops in order, views among them.
        values: Types of all values.
    """
    tensors = values.tensors
    same: dict[int, frozenset[int]] = {}
    made: list[Op] = []
    found = False
    for op in ops:
        if _repeats_one(op, same, tensors):
            result = op.results[0]
            read = tensors[result].bytes
            op = moved(op, OpKind.SLICE, "stablehlo.slice", op.operands[0], result, values, read=read)
            found = True
        dims = _dims_alike(op, same, tensors)
        if dims:
            same[op.results[0]] = dims
        made.append(op)
    return made if found else ops


def _repeats_one(op: Op, same: Mapping[int, frozenset[int]], tensors: Sequence[Tensor]) -> bool:
    shape = op.cost.geometry
    return (
        op.cost.kind is OpKind.REDUCE
        and isinstance(shape, Reduction)
        and len(op.results) == 1
        and bool(shape.dims)
        and shape.shape == tensors[op.operands[0]].shape
        and same.get(op.operands[0], _NONE).issuperset(shape.dims)
    )


def _dims_alike(op: Op, same: Mapping[int, frozenset[int]], tensors: Sequence[Tensor]) -> frozenset[int]:
    """Dimensions of an op's result along which all elements are the same, as far as its kind tells."""
    if len(op.results) != 1:
        return _NONE
    kind, shape = op.cost.kind, tensors[op.results[0]].shape
    everywhere = frozenset(range(len(shape)))
    if kind is OpKind.GENERATE:
        if op.cost.orders:  # a counter
            return everywhere - set(op.cost.orders[0])
        # A workload keeps no values: constants of several elements may be anything. JAX writes what is alike as a broadcast.
        return everywhere if tensors[op.results[0]].elements == 1 else _NONE
    if kind is OpKind.BROADCAST and op.operands:
        return _repeated(op, tensors[op.operands[0]].shape, shape)
    if kind is OpKind.ELEMENTWISE and op.operands:
        dims = everywhere
        for value in op.operands:
            if tensors[value].elements != 1:
                dims &= same.get(value, _NONE) if tensors[value].shape == shape else _NONE
        return dims
    if kind is OpKind.VIEW and op.operands:
        before, given = tensors[op.operands[0]].shape, same.get(op.operands[0], _NONE)
        return given if before == shape else everywhere if len(given) == len(before) else _NONE
    if kind is OpKind.SLICE and op.operands:
        given = same.get(op.operands[0], _NONE)
        return given if len(tensors[op.operands[0]].shape) == len(shape) else _NONE
    return _NONE


def _repeated(op: Op, operand: tuple[int, ...], result: tuple[int, ...]) -> frozenset[int]:
    """Dimensions that a broadcast repeats: those it adds, and those of one element that it makes longer."""
    everywhere = frozenset(range(len(result)))
    long = [size for size in operand if size > 1]
    if not long:
        return everywhere
    if op.cost.orders:
        taken = zip(op.cost.orders[0], operand, strict=False)
        return everywhere - {dim for dim, size in taken if size > 1}
    places = [dim for dim, size in enumerate(result) if size == long[0]]
    return everywhere - set(places) if len(long) == 1 and len(places) == 1 else _NONE
