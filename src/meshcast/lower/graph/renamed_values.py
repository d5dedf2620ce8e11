"""Ops and blocks with other names of values."""

from __future__ import annotations

from collections.abc import Mapping

from meshcast.base import copier
from meshcast.workload import Block, Op

_renamed_op = copier(Op, "operands", "results", "equal", "blocks")


def renamed(block: Block, names: Mapping[int, int]) -> Block:
    """The block with other names of values that it reads."""
    outputs = tuple([names.get(value, value) for value in block.outputs])
    return Block(inputs=block.inputs, outputs=outputs, ops=tuple([renamed_op(op, names) for op in block.ops]))


def renamed_op(op: Op, names: Mapping[int, int]) -> Op:
    """The op with other names of values that it, or a block of it, reads or makes."""
    known = names.keys()
    if not op.blocks and known.isdisjoint(op.operands) and known.isdisjoint(op.results) and known.isdisjoint(op.equal):
        return op
    return _renamed_op(
        op,
        tuple([names.get(value, value) for value in op.operands]),
        tuple([names.get(value, value) for value in op.results]),
        tuple([names.get(value, value) for value in op.equal]),
        tuple([renamed(block, names) for block in op.blocks]),
    )
