"""What a loop saves for a later one kept in the host's memory: its copies, and what stays on the device of it.

A training step's loop over layers fills stacks that the loop of its backward pass reads. Offloaded, each turn of the first sends
its slot to the host while the next computes, and each turn of the second finds its slot fetched while the one before computed
(JAX's `save_and_offload_only_these_names`, which MaxText's policies with `offload` are made of). Two slots of a stack are on the
device at a time: the one in use, and the one on its way. How long that takes is for who knows the link (`simulate.engine`).
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.kernel import Kernel, LoopStep, Schedule, Step
from meshcast.lower.schedule.inner_blocks import only_fills, with_inner_blocks
from meshcast.lower.schedule.step_dependencies import on_values
from meshcast.lower.value_types import ValueTypes

SLOTS_HELD = 2


def with_offloaded_stacks(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with stacks that pass from one loop to another in the host's memory, inner blocks first."""
    steps: list[Step] = [
        with_inner_blocks(step, lambda body: with_offloaded_stacks(body, values)) for step in schedule.steps
    ]
    begun: set[int] = set()  # what offloaded stacks begin as
    for index, step in enumerate(tuple(steps)):
        if not isinstance(step, LoopStep):
            continue
        for place, stack in enumerate(step.writes):
            readers = [other for other, each in enumerate(steps) if stack in each.reads]
            kind = values.tensors[stack]
            is_stack = len(kind.shape) > 1 and kind.shape[0] == step.trips > SLOTS_HELD and _fills(step, place)
            if (
                not is_stack
                or stack in schedule.outputs
                or not readers
                or not all(other > index and _carries(steps[other], stack) for other in readers)
            ):
                continue
            held = values.new((SLOTS_HELD, *kind.shape[1:]), kind.dtype)
            slot = kind.bytes // step.trips
            begun.add(step.reads[place])
            steps[index] = _moving(
                _beginning(steps[index], place, held, values), stack, held, slot, values, fetched=False
            )
            for other in readers:
                steps[other] = _moving(steps[other], stack, held, slot, values, fetched=True)
    unused = begun.difference(schedule.outputs, *(step.reads for step in steps))
    return replace(schedule, steps=tuple(step for step in steps if not only_fills(step, unused)))


def _beginning(step: Step, place: int, held: int, values: ValueTypes) -> LoopStep:
    """A loop that begins with what is held of a stack, though several of its stacks begin as the same zeros."""
    assert isinstance(step, LoopStep)
    kind = values.tensors[held]
    reads = list(step.reads)
    reads[place] = values.new(kind.shape, kind.dtype)
    return replace(step, reads=tuple(reads))


def _fills(loop: LoopStep, place: int) -> bool:
    """Whether a loop only writes what it carries there, a slot in each turn; without slots nobody in it has it at all."""
    before, after = loop.body.inputs[place], loop.body.outputs[place]
    readers = [
        step
        for step in loop.body.steps
        if before in step.reads or (isinstance(step, Kernel) and before in step.updates)
    ]
    if before == after:
        return not readers
    return all(isinstance(step, Kernel) and step.updates[:1] == (before,) and after in step.writes for step in readers)


def _carries(step: Step, stack: int) -> bool:
    """Whether a step is a loop that reads a stack and leaves it as it is."""
    if not isinstance(step, LoopStep):
        return False
    return all(value.unchanged for value in step.carried if value.initial == stack)


def _moving(step: Step, stack: int, held: int, slot: int, values: ValueTypes, *, fetched: bool) -> LoopStep:
    """A loop of which each turn sends or fetches a slot of a stack, with what is held of it instead of the stack."""
    assert isinstance(step, LoopStep)
    body, kind = step.body, values.tensors[held]
    inside = {
        value for each in step.carried if stack in (each.initial, each.result) for value in (each.before, each.after)
    }
    names = {value: values.new(kind.shape, kind.dtype) for value in sorted(inside)}
    renamed = on_values(replace(step, body=replace(body, inputs=())), names)
    assert isinstance(renamed, LoopStep)
    return replace(
        step,
        body=replace(renamed.body, inputs=tuple(names.get(value, value) for value in body.inputs)),
        reads=tuple(held if value == stack else value for value in step.reads),
        writes=tuple(held if value == stack else value for value in step.writes),
        host_bytes=step.host_bytes + slot,
        fetched_bytes=step.fetched_bytes + (slot if fetched else 0),
    )
