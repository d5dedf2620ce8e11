"""Arguments and constants that a program returns as they are: XLA copies them, as an output has memory of its own.

Of an output that is a parameter, a constant or another output copy_insertion makes a copy (AddSpecialCaseCopies), unless the
parameter is donated for that very output: then both are one buffer, and nothing runs. What a loop hands on from turn to turn as
it was given it is no result of the loop (while_loop_simplifier), but what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import LoopStep, Schedule, Step
from meshcast.lower.value_types import ValueTypes
from meshcast.programs import Argument


def with_returned_copies(schedule: Schedule, arguments: Sequence[Argument], values: ValueTypes) -> Schedule:
    """The program's schedule with a copy for each output that no step writes, or that another output is already."""
    held = dict(zip(schedule.inputs, arguments, strict=False))
    given = _given(schedule.steps)
    returned = [given.get(value, value) for value in schedule.outputs]
    unwritten = {*schedule.inputs, *returned}.difference(_written(schedule.steps))
    outputs: list[int] = []
    copies: list[Step] = []
    for position, value in enumerate(returned):
        argument = held.get(value)
        donated = argument is not None and argument.donated and argument.aliased_output in (None, position)
        if (value not in unwritten or donated) and value not in outputs:
            outputs.append(value)
            continue
        tensor = values.tensors[value]
        outputs.append(values.new(tensor.shape, tensor.dtype))
        if tensor.elements:
            copies.append(copy_kernel(value, outputs[-1], tensor, ""))
    return replace(schedule, outputs=tuple(outputs), steps=(*schedule.steps, *copies))


def _given(steps: Sequence[Step]) -> dict[int, int]:
    """Results of loops that are what the loop was given, by the result."""
    found: dict[int, int] = {}
    for step in steps:
        if isinstance(step, LoopStep):
            for carried in step.carried:
                if carried.unchanged:
                    found[carried.result] = found.get(carried.initial, carried.initial)
    return found


def _written(steps: Sequence[Step]) -> set[int]:
    return {value for step in steps for value in step.writes}
