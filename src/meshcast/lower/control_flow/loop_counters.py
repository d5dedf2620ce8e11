"""Counters of a loop that always agree are one: XLA's while_loop_simplifier (TryMergeInductionVariables).

`jax.lax.fori_loop` hands its index from turn to turn beside the counter of the scan that it becomes. XLA keeps one counter of a
type and computes all others from it where they are read: no kernel adds to them. Merged here are those that begin with one
value and grow by one constant, which are names of the first; with others arithmetic on a number would take the name's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.graph.renamed_values import renamed_op
from meshcast.workload import Block, Op, OpKind, Tensor

_NUMBERS = frozenset({"i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"})


def with_single_counters(ops: Sequence[Op], tensors: Sequence[Tensor]) -> list[Op]:
    """The ops, whose loops hand on one counter instead of several that agree.

    Args:
        ops: A block's ops in order.
        tensors: Types of all values.
    """
    known = _same(ops)
    return [_merged(op, known, tensors) if op.cost.kind is OpKind.LOOP and len(op.blocks) == 1 else op for op in ops]


def _merged(loop: Op, outside: dict[int, int], tensors: Sequence[Tensor]) -> Op:
    (body,) = loop.blocks
    steps = _increments(body, outside, tensors)
    if len(steps) < 2:
        return loop
    first: dict[tuple[str, int, int], int] = {}
    names: dict[int, int] = {}  # of a counter at the begin of a turn, the one that agrees with it
    for place, step in steps.items():
        value, initial = body.inputs[place], loop.operands[place]
        same = first.setdefault((tensors[value].dtype, outside.get(initial, initial), step), value)
        if same != value:
            names[value] = same
    if not names:
        return loop
    # A name is handed on as it came: nothing is computed for it, and it keeps its place among what the loop carries.
    outputs = [value if value in names else made for value, made in zip(body.inputs, body.outputs, strict=True)]
    inner = tuple([renamed_op(op, names) for op in body.ops])
    return replace(loop, blocks=(Block(inputs=body.inputs, outputs=tuple(outputs), ops=inner),))


def _increments(body: Block, outside: dict[int, int], tensors: Sequence[Tensor]) -> dict[int, int]:
    """The places of carried numbers that a constant is added to in each turn, with that constant."""
    inside = _same(body.ops)
    makers = {op.results[0]: op for op in body.ops if len(op.results) == 1}
    found: dict[int, int] = {}
    for place, (before, after) in enumerate(zip(body.inputs, body.outputs, strict=True)):
        tensor, op = tensors[before], makers.get(after)
        if tensor.shape or tensor.dtype not in _NUMBERS or op is None or not op.name.endswith(".add"):
            continue
        if before not in op.operands or len(op.operands) != 2:
            continue
        added = next((value for value in op.operands if value != before), before)
        added = inside.get(added, added)
        maker = makers.get(added)
        # What the body does not make and is not handed was there before the loop: the same in every turn.
        if (maker is None and added not in body.inputs) or (maker is not None and maker.cost.kind is OpKind.GENERATE):
            found[place] = outside.get(added, added)
    return found


def _same(ops: Sequence[Op]) -> dict[int, int]:
    """The value of an earlier op that each is equal to."""
    return {value: first for op in ops if op.equal for value, first in zip(op.results, op.equal, strict=True)}
