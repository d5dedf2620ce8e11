"""Constants of loops and branches: what is computed of constants alone lies inside of the blocks that read it.

Merging equal ops (`partition.flatten`) leaves a body with the constants of the block around it, spread and computed upon as they
may be. XLA merges within a computation alone, and sinks constants into loops (while_loop_constant_sinking): there they are
numbers in the code of a fusion, where an array from outside would be written once and read in every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from meshcast.lower.graph.renamed_values import renamed, renamed_op
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Block, Op, OpKind

_COMPUTED = frozenset({OpKind.BROADCAST, OpKind.ELEMENTWISE, OpKind.VIEW})


def with_inner_constants(ops: Sequence[Op], free: Callable[[Block], set[int]], values: ValueTypes) -> list[Op]:
    """The ops, whose blocks have copies of their own of constants, and of what is computed of constants alone.

    Args:
        ops: A block's ops in order.
        free: What a nested block reads from outside.
        values: Types of all values, which the copies' join.
    """
    makers: dict[int, Op] = {}
    changed: list[Op] = []
    for op in ops:
        if _is_constant(op, makers):
            makers.update(dict.fromkeys(op.results, op))
        elif op.blocks and any(not makers.keys().isdisjoint(free(block)) for block in op.blocks):
            op = replace(op, blocks=tuple([closed_block(block, free(block), makers, values) for block in op.blocks]))
        changed.append(op)
    return changed


def constant_makers(ops: Sequence[Op]) -> dict[int, Op]:
    """The ops that make constants and what is computed of constants alone, by their results."""
    makers: dict[int, Op] = {}
    for op in ops:
        if _is_constant(op, makers):
            makers.update(dict.fromkeys(op.results, op))
    return makers


def _is_constant(op: Op, makers: Mapping[int, Op]) -> bool:
    kind = op.cost.kind
    return kind is OpKind.GENERATE or (kind in _COMPUTED and all([value in makers for value in op.operands]))


def closed_block(block: Block, free: set[int], makers: Mapping[int, Op], values: ValueTypes) -> Block:
    """The block with what it reads of `makers` made inside."""
    copies: dict[int, Op] = {}  # by the first result of what they copy, in order
    names: dict[int, int] = {}
    waiting = sorted(free & makers.keys(), reverse=True)
    while waiting:
        op = makers[waiting[-1]]
        before = [value for value in op.operands if value not in names]
        if before:
            waiting += before
            continue
        waiting.pop()
        if op.results[0] in copies:
            continue
        for value in op.results:
            tensor = values.tensors[value]
            names[value] = values.new(tensor.shape, tensor.dtype)
        copies[op.results[0]] = renamed_op(op, names)
    return renamed(replace(block, ops=(*copies.values(), *block.ops)), names)
