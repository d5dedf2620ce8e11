"""What blocks read from outside, and what they read for the first time in every round of a loop."""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.workload.graph import Block, Op, OpKind, Tensor


def free_values(block: Block) -> set[int]:
    """Values a block reads that it neither takes as input nor defines."""
    defined = set(block.inputs)
    free: set[int] = set()
    for op in block.ops:
        free |= reads(op)
        defined.update(op.results)
    free.update(block.outputs)
    return free - defined


def reads(op: Op) -> set[int]:
    """What an op reads: its operands, and what its blocks read from outside of them."""
    return set(op.operands).union(*map(free_values, op.blocks))


def stepped_slices(ops: Sequence[Op], tensors: Sequence[Tensor]) -> set[int]:
    """Ops of a loop's body that cut another part of their operand in every round: no cache has it yet."""
    return {
        index
        for index, op in enumerate(ops)
        if op.cost.kind is OpKind.SLICE
        and op.name.endswith("dynamic_slice")
        and op.cost.operand_bytes[0] < tensors[op.operands[0]].bytes
    }
