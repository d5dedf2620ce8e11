"""The conditions of loops that end on data: kernels of their own, which know nothing of what is computed around them.

XLA keeps a condition as a computation of its own, which a loop runs before its first turn and behind every turn (while_thunk.cc).
So what it computes is never fused with the turn that made its operands, nor joined with a kernel that reads the same, nor known
before the run where a loop begins with constants. A reader of programs puts these ops where they run (`Op.asks`); here they are
lowered as a block of their own there, whose kernels are put back among the others once these are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshcast.lower.control_flow.inner_constants import closed_block, constant_makers
from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.kernel import LoopStep, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Block, Cost, Op, OpKind

QUESTION = "question"  # of the ops of a condition, as if they were a loop's body of one turn


def has_questions(draft: BlockDraft) -> bool:
    """Whether a block asks whether a loop goes on."""
    return any(op.asks for op in draft.block.ops)


def set_questions_apart(draft: BlockDraft) -> None:
    """`with_questions_apart`."""
    ops = with_questions_apart(draft.block, draft.program.free, draft.values)
    draft.block = replace(draft.block, ops=tuple(ops))


def may_have_questions(draft: ProgramDraft) -> bool:
    """Whether a program has loops that end on data."""
    return bool(draft.on_data)


def put_questions_back(draft: ProgramDraft) -> None:
    """`with_questions_among_others`."""
    draft.schedule = with_questions_among_others(draft.schedule)


def with_questions_apart(block: Block, free: Callable[[Block], set[int]], values: ValueTypes) -> list[Op]:
    """The ops of a block with those of each condition as one op with a block, which stands where the first of them stood.

    Constants that it reads are made inside, but not those that a loop begins with or carries on.

    Args:
        block: The block.
        free: What a nested block reads from outside.
        values: Types of all values.
    """
    carried = set(block.outputs).union(*[op.operands for op in block.ops if op.cost.kind is OpKind.LOOP])
    read = {value for op in block.ops for value in op.operands}.union(*[free(b) for op in block.ops for b in op.blocks])
    made: list[Op] = []
    for asks, run in _runs(block.ops):
        if not asks:
            made += run
            continue
        own = {value for op in run for value in op.results}
        ops = tuple([replace(op, asks="", equal=op.equal if own.issuperset(op.equal) else ()) for op in run])
        needed = own.intersection(block.outputs) | {
            value for value in own & read if _read_outside(value, block.ops, asks)
        }
        inner = Block(inputs=(), outputs=tuple(sorted(needed)), ops=ops)
        makers = constant_makers(
            [op for op in block.ops if carried.isdisjoint(op.results) and own.isdisjoint(op.results)]
        )
        inner = closed_block(inner, free(inner), makers, values)
        given = tuple(sorted(free(inner)))
        cost = Cost(kind=OpKind.LOOP)
        made.append(Op(name=QUESTION, cost=cost, operands=given, results=inner.outputs, blocks=(inner,)))
    return made


def _runs(ops: Sequence[Op]) -> list[tuple[str, list[Op]]]:
    runs: list[tuple[str, list[Op]]] = []
    for op in ops:
        if not runs or runs[-1][0] != op.asks:
            runs.append((op.asks, []))
        runs[-1][1].append(op)
    return runs


def _read_outside(value: int, ops: Sequence[Op], asks: str) -> bool:
    return any(value in op.operands for op in ops if op.asks != asks)


def with_questions_among_others(schedule: Schedule) -> Schedule:
    """A schedule with the kernels of conditions where they run, at every depth."""
    steps: list[Step] = []
    for step in schedule.steps:
        if isinstance(step, LoopStep) and step.label == QUESTION:
            steps += with_questions_among_others(step.body).steps
        else:
            steps.append(with_inner_blocks(step, with_questions_among_others))
    return replace(schedule, steps=tuple(steps))
