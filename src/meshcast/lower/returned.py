"""Arguments and constants that a program returns as they are: XLA copies them, as an output has memory of its own.

Of an output that is a parameter, a constant or another output copy_insertion makes a copy (AddSpecialCaseCopies), unless the
parameter is donated for that very output: then both are one buffer, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.kernel import Schedule, Step
from meshcast.lower.rewriting import ValueTypes
from meshcast.lower.small_kernels import copy_kernel
from meshcast.programs import Argument


def with_returned_copies(schedule: Schedule, arguments: Sequence[Argument], values: ValueTypes) -> Schedule:
    """The program's schedule with a copy for each output that no step writes, or that another output is already."""
    held = dict(zip(schedule.inputs, arguments, strict=False))
    unwritten = {*schedule.inputs, *schedule.outputs}.difference(_written(schedule.steps))
    outputs: list[int] = []
    copies: list[Step] = []
    for position, value in enumerate(schedule.outputs):
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


def _written(steps: Sequence[Step]) -> set[int]:
    return {value for step in steps for value in step.writes}
