"""Updates in place, and the copies of their targets where a target is still needed (XLA's copy_insertion)."""

from __future__ import annotations

from collections.abc import Sequence, Set

from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.lower.kernel import Kernel
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Op, OpKind


def kept_targets(
    ops: Sequence[Op], operands: Sequence[tuple[int, ...]], live_out: Set[int], writable: Set[int]
) -> set[int]:
    """Places of updates that may not happen in place: their target is read later, or is not the block's to overwrite.

    Args:
        ops: A block's ops in order.
        operands: The operands of each op, views resolved.
        live_out: Values that are read after the block, or by blocks in it.
        writable: Inputs of the block that may be overwritten.
    """
    last: dict[int, int] = {}
    owned = set(writable)
    for index, op in enumerate(ops):
        for value in operands[index]:
            last[value] = index
        if op.cost.kind is not OpKind.GENERATE:
            owned.update(op.results)
    return {
        index
        for index, op in enumerate(ops)
        if op.cost.kind in IN_PLACE
        and any(v not in owned or v in live_out or last[v] > index for v in operands[index][: len(op.results)])
    }


def copied_targets(op: Op, operands: tuple[int, ...], values: ValueTypes) -> tuple[list[Kernel], tuple[int, ...]]:
    """Copies of an update's targets, and its operands with the copies in their place."""
    copies: list[Kernel] = []
    targets: list[int] = []
    for value in operands[: len(op.results)]:
        tensor = values.tensors[value]
        targets.append(values.new(tensor.shape, tensor.dtype))
        copies.append(copy_kernel(value, targets[-1], tensor, op.location))
    return copies, (*targets, *operands[len(targets) :])
