"""Loops of one turn: their bodies run where the loop stood (XLA's while_loop_simplifier), and nothing is copied for them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from meshcast.lower.graph.renamed_values import renamed_op
from meshcast.workload import Block, Op, OpKind


def turns_once(op: Op, on_data: Set[str]) -> bool:
    """Whether an op is a loop of one turn, and none of those that end `on_data`, which no compiler knows the turns of."""
    return op.cost.kind is OpKind.LOOP and op.trip_count == 1 and op.name not in on_data


def without_single_turns(block: Block, on_data: Set[str]) -> Block:
    """The block with the ops of loops of one turn in the loops' places; nested blocks are left alone."""
    names: dict[int, int] = {}
    ops: list[Op] = []
    for op in block.ops:
        if names:
            op = renamed_op(op, names)
        if not turns_once(op, on_data):
            ops.append(op)
            continue
        (body,) = op.blocks
        taken = dict(zip(body.inputs, op.operands, strict=True))
        inner = without_single_turns(body, on_data)
        ops += [renamed_op(each, taken) for each in inner.ops]
        names.update({v: taken.get(made, made) for v, made in zip(op.results, inner.outputs, strict=True)})
    outputs = tuple([names.get(value, value) for value in block.outputs])
    return replace(block, ops=tuple(ops), outputs=outputs)
