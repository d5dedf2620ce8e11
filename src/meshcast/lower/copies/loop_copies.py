"""Copies of what loops carry: XLA's copy_insertion around and inside `while`.

A loop writes over the buffers that it is given. What it changes is copied first where it is not the loop's to overwrite: an
argument that is not donated, a constant, a value that is read behind the loop or begins two carried values. Inside, a
carried value that a turn only hands on to another place is copied at the turn's end, and so is a new value that is needed to
compute what still reads the old one, or that is computed from it other than element by element: no order of kernels lets it be
written into the carried buffer. A kernel that computes the new values of several from the old ones of the same, element by
element, writes each over its own.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.copies.shared_buffers import writes_over
from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step
from meshcast.lower.value_types import ValueTypes


def with_loop_copies(schedule: Schedule, values: ValueTypes, writable: Set[int]) -> Schedule:
    """A block's schedule with the copies around its loops and in their bodies, at every depth.

    Args:
        schedule: The block's.
        values: Types of all values.
        writable: Those of its inputs that may be overwritten.
    """
    last: dict[int, int] = {}
    for index, step in enumerate(schedule.steps):
        last.update(dict.fromkeys(step.reads, index))
    last.update(dict.fromkeys(schedule.outputs, len(schedule.steps)))
    owned = set(writable)
    steps: list[Step] = []
    for index, step in enumerate(schedule.steps):
        if isinstance(step, LoopStep):
            copies, given = _given_copies(step, index, last, owned, values)
            steps += copies
            steps.append(replace(step, reads=given, body=_turn(step.body, values)))
        elif isinstance(step, BranchStep):
            bodies = tuple([with_loop_copies(body, values, frozenset()) for body in step.bodies])
            steps.append(replace(step, bodies=bodies))
        else:
            steps.append(step)
        owned.update(step.writes)
    return replace(schedule, steps=tuple(steps))


def _given_copies(
    loop: LoopStep, index: int, last: dict[int, int], owned: Set[int], values: ValueTypes
) -> tuple[list[Step], tuple[int, ...]]:
    """Copies of what a loop changes and may not overwrite, and what it reads with the copies in their place."""
    given, taken = list(loop.reads), set[int]()
    copies: list[Step] = []
    for position, carried in enumerate(loop.carried):
        if carried.unchanged:
            continue
        value = carried.initial
        if value in owned and last[value] <= index and value not in taken:
            taken.add(value)
            continue
        given[position], made = _copied(value, values, loop.label)
        copies += made
    return copies, tuple(given)


def _turn(body: Schedule, values: ValueTypes) -> Schedule:
    """A loop's body with copies at its end, and with those of the loops in it."""
    inner = with_loop_copies(body, values, frozenset(body.inputs))
    made = {value: index for index, step in enumerate(inner.steps) for value in step.writes}
    outputs, taken = list(inner.outputs), set[int]()
    copies: list[Step] = []
    for position, (before, after) in enumerate(zip(inner.inputs, inner.outputs, strict=True)):
        if before == after:
            continue
        index = made.get(after)
        if index is not None and after not in taken and _takes_the_place(inner, index, before, after):
            taken.add(after)
            continue
        outputs[position], copy = _copied(after, values, "")
        copies += copy
    return replace(inner, steps=(*inner.steps, *copies), outputs=tuple(outputs))


def _takes_the_place(body: Schedule, index: int, before: int, after: int) -> bool:
    """Whether the step at `index` can write a carried value's new state where the old one lies."""
    step = body.steps[index]
    if before in step.reads and not (isinstance(step, Kernel) and writes_over(step, before, after)):
        return False
    derived = set(step.writes)  # what cannot be computed before that step
    for later in body.steps[index + 1 :]:
        if derived.isdisjoint(later.reads):
            continue
        if before in later.reads:
            return False
        derived.update(later.writes)
    return True


def _copied(value: int, values: ValueTypes, location: str) -> tuple[int, list[Step]]:
    tensor = values.tensors[value]
    copy = values.new(tensor.shape, tensor.dtype)
    return copy, [copy_kernel(value, copy, tensor, location)] if tensor.elements else []
