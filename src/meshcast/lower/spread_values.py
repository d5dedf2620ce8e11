"""From how many elements values are spread by ops that their readers may compute.

XLA:GPU's layout assignment gives what is spread from smaller arrays the order that a reduction of it wants
(GpuLayoutAssignment::PropagateReductionLayoutToOperand), so that the reduction goes along rows. A conversion to a wider type
spreads nothing, though it doubles the bytes: it lies as what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshcast.workload import Op, OpKind, Tensor


def spread_from(
    ops: Sequence[Op], operands: Sequence[tuple[int, ...]], producers: Sequence[int], tensors: Sequence[Tensor]
) -> Callable[[int], int]:
    """How many elements it takes to have a value, by value.

    Args:
        ops: A block's ops in order.
        operands: Theirs, views resolved.
        producers: Places of the ops, of one result each, that readers may compute.
        tensors: Types of all values.
    """
    found: dict[int, int] = {}
    for index in producers if any(op.cost.kind is OpKind.REDUCE for op in ops) else ():
        op, total = ops[index], 0
        for value, size in zip(operands[index], op.cost.operand_bytes, strict=False):
            read = tensors[value]
            own = read.elements * size // read.bytes if read.bytes else 0
            total += min(own, found.get(value, own))
        found[op.results[0]] = min(total, tensors[op.results[0]].elements)
    return lambda value: found.get(value, tensors[value].elements)
