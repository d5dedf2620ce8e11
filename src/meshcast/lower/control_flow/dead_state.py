"""What a loop carries for nobody: state that is read neither behind the loop nor by what is, goes (while_loop_simplifier).

A carried value is needed if its last one is read behind the loop, if the condition reads it, or if a turn computes another needed
value from it (TryRemoveDeadWhileParams). Statistics of a solver that its caller drops, stacked results that nobody asks for
and flags that only feed each other are carried by the program and by no compiled loop: without kernels, copies and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.lower.graph.dead_code import has_effect, live_ops
from meshcast.workload import Block, Op, OpKind, Tensor

Free = Callable[[Block], set[int]]


def has_loops(draft: BlockDraft) -> bool:
    """Whether a block has loops."""
    return any(op.cost.kind is OpKind.LOOP for op in draft.block.ops)


def drop_dead_state(draft: BlockDraft) -> None:
    """`without_dead_state`."""
    program = draft.program
    draft.block = without_dead_state(draft.block, program.free, program.on_data, draft.values.tensors)


def without_dead_state(block: Block, free: Free, on_data: Set[str], tensors: Sequence[Tensor]) -> Block:
    """The block, whose loops carry what somebody needs; itself where they all do.

    Args:
        block: The block.
        free: What a nested block reads from outside.
        on_data: Labels of loops that end on data.
        tensors: Types of all values.
    """
    read = set(block.outputs)
    made: list[Op] = []
    for op in reversed(block.ops):
        changed = op
        if op.cost.kind is OpKind.LOOP and len(op.blocks) == 1:
            changed = _with_needed(op, read, free, op.name in on_data, tensors)
        made.append(changed)
        read.update(changed.operands)
        for inner in changed.blocks:
            read |= free(inner)
    made.reverse()
    if all(new is old for new, old in zip(made, block.ops, strict=True)):
        return block
    return replace(block, ops=tuple(made))


def _with_needed(loop: Op, read: Set[int], free: Free, ends_on_data: bool, tensors: Sequence[Tensor]) -> Op:
    """A loop with what is needed of its state; `read` are the values that are read behind it."""
    (body,) = loop.blocks
    places = range(len(body.inputs))
    if not len(loop.operands) == len(loop.results) == len(body.outputs) == len(body.inputs):
        return loop
    if ends_on_data:
        if not any(op.asks == loop.name for op in body.ops):
            return loop  # which of its values it ends on nobody tells
        asked = {len(body.inputs) - 1}  # the answer
    else:  # the counter that its condition reads is a number
        asked = {place for place in places if tensors[body.inputs[place]].elements == 1}
    needed = asked | {place for place in places if loop.results[place] in read}
    if len(needed) < len(places):
        needed = _closed(body, needed, free)
    if len(needed) == len(places):
        return loop
    kept = sorted(needed)
    inner = replace(
        body, inputs=tuple([body.inputs[at] for at in kept]), outputs=tuple([body.outputs[at] for at in kept])
    )
    return replace(
        loop,
        operands=tuple([loop.operands[at] for at in kept]),
        results=tuple([loop.results[at] for at in kept]),
        blocks=(replace(inner, ops=tuple(live_ops(inner, free))),),
    )


def _closed(body: Block, needed: Set[int], free: Free) -> set[int]:
    """The places that are needed of a loop's state once these are: each value of the body is walked back from once."""
    maker = {value: op for op in body.ops for value in op.results}
    carried = {value: place for place, value in enumerate(body.inputs)}
    found, seen = set(needed), {body.outputs[place] for place in needed}
    waiting = list(seen)
    walked: set[int] = set()  # ops, by identity

    def walk(op: Op) -> None:
        if id(op) in walked:
            return
        walked.add(id(op))
        for value in (*op.operands, *[value for inner in op.blocks for value in free(inner)]):
            if value not in seen:
                seen.add(value)
                waiting.append(value)

    for op in body.ops:
        if has_effect(op):
            walk(op)
    while waiting:
        value = waiting.pop()
        if value in maker:
            walk(maker[value])
        place = carried.get(value)
        if place is not None and place not in found:
            found.add(place)
            if body.outputs[place] not in seen:
                seen.add(body.outputs[place])
                waiting.append(body.outputs[place])
    return found
