"""Slices that a loop's body reads for the first time in every round: no cache has them yet."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.workload import Op, OpKind, Tensor


def stepped_slices(ops: Sequence[Op], tensors: Sequence[Tensor]) -> set[int]:
    """Ops of a loop's body that cut another part of their operand in every round: no cache has it yet."""
    return {
        index
        for index, op in enumerate(ops)
        if op.cost.kind is OpKind.SLICE
        and op.name.endswith("dynamic_slice")
        and op.cost.operand_bytes[0] < tensors[op.operands[0]].bytes
    }
