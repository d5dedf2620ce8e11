"""Values that are computed from the reduction of a row alone: a row fusion has them at hand for all of the row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.workload import Op, OpKind, Reduction, Tensor

# Elements of a row that one block keeps in registers: XLA:GPU on an H200 fuses softmax over 8,192 and not over 50,257.
MAX_ROW = 16384

HowReduced = tuple[int, int, bool]  # elements before, elements after, whether the innermost dimensions go


def reduction_of(op: Op, tensors: Sequence[Tensor]) -> HowReduced | None:
    """How an op reduces; None where it does not."""
    geometry = op.cost.geometry
    if op.cost.kind is not OpKind.REDUCE or not isinstance(geometry, Reduction):
        return None
    rank, gone = len(geometry.shape), len(geometry.dims)
    innermost = set(geometry.dims) == set(range(rank - gone, rank))
    return math.prod(geometry.shape), tensors[op.results[0]].elements, innermost


def row_statistics(
    ops: Sequence[Op],
    operands: Sequence[tuple[int, ...]],
    tensors: Sequence[Tensor],
) -> dict[int, int]:
    """Values that are computed from a row's reduction alone, with the elements of those rows.

    Args:
        ops: A block's ops in order.
        operands: Their operands, with views resolved.
        tensors: Types of all values.
    """
    found: dict[int, int] = {}
    for index, op in enumerate(ops):
        kind = op.cost.kind
        if kind is OpKind.REDUCE:
            reduction = reduction_of(op, tensors)
            if reduction and reduction[2] and reduction[0] <= MAX_ROW * reduction[1]:
                found[op.results[0]] = reduction[0]
        elif found and kind is OpKind.ELEMENTWISE and not found.keys().isdisjoint(operands[index]):
            elements = tensors[op.results[0]].elements
            for value in operands[index]:
                if value in found and tensors[value].elements == elements:
                    found[op.results[0]] = found[value]
    return found
