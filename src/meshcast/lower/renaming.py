"""Ops and blocks with other names of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.workload import Block, Op


def renamed(block: Block, names: Mapping[int, int]) -> Block:
    """The block with other names of values that it reads."""
    outputs = tuple([names.get(value, value) for value in block.outputs])
    return replace(block, outputs=outputs, ops=tuple([renamed_op(op, names) for op in block.ops]))


def renamed_op(op: Op, names: Mapping[int, int]) -> Op:
    """The op with other names of values that it, or a block of it, reads or makes."""
    named = {value for value in (*op.operands, *op.results, *op.equal) if value in names}
    if not named and not op.blocks:
        return op
    return replace(
        op,
        operands=tuple([names.get(value, value) for value in op.operands]),
        results=tuple([names.get(value, value) for value in op.results]),
        equal=tuple([names.get(value, value) for value in op.equal]),
        blocks=tuple([renamed(block, names) for block in op.blocks]),
    )
