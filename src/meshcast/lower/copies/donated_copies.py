"""Donated arguments that are read while their memory is written over already: XLA reads a copy.

An output that takes a donated argument's memory may be written once nobody reads the argument any more. XLA's copy_insertion
runs before kernels are put in order, so that it asks what waits for what: where some reader of the argument does not come
before the output's kernel by its operands, the argument is copied at the program's beginning, and all read the copy
(AddCopiesForAliasedInputOutputs, RemoveUnnecessaryCopies). In a training step these are the weights that a backward pass
multiplies gradients by while the optimizer has their own gradient already. A stack that a loop makes of the parts of another one
it is handed (a cache, layer by layer) is written while that is read: it is copied into the argument's memory behind the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import LoopStep, Schedule, Step
from meshcast.lower.schedule.step_dependencies import dependencies, on_values
from meshcast.lower.value_types import ValueTypes
from meshcast.programs import Argument
from meshcast.workload import Tensor


def outputs_in_place(schedule: Schedule, arguments: Sequence[Argument], tensors: Sequence[Tensor]) -> dict[int, int]:
    """Positions of outputs that take a donated argument's memory, with that argument's value.

    `tf.aliasing_output` names the output; arguments that are marked as donors only (`jax.buffer_donor`) are paired by
    XLA with outputs of the same type that are still free, in order.
    """
    pairs: dict[int, int] = {}
    donors: list[int] = []
    for value, argument in zip(schedule.inputs, arguments, strict=False):
        if argument.aliased_output is not None and argument.aliased_output < len(schedule.outputs):
            pairs[argument.aliased_output] = value
        elif argument.donated:
            donors.append(value)
    free: dict[Tensor, list[int]] = {}
    for position in range(len(schedule.outputs) - 1, -1, -1):
        if position not in pairs:
            free.setdefault(tensors[schedule.outputs[position]], []).append(position)
    for donor in donors:
        if free.get(tensors[donor]):
            pairs[free[tensors[donor]].pop()] = donor
    return pairs


def with_donated_copies(schedule: Schedule, arguments: Sequence[Argument], values: ValueTypes) -> Schedule:
    """The program's schedule with a copy of every such argument first, and of every such stack last."""
    pairs = outputs_in_place(schedule, arguments, values.tensors)
    if not pairs:
        return schedule
    writers = {value: index for index, step in enumerate(schedule.steps) for value in step.writes}
    readers: dict[int, list[int]] = {}
    for index, step in enumerate(schedule.steps):
        for value in dict.fromkeys(step.reads):
            readers.setdefault(value, []).append(index)
    earlier = _earlier(schedule.steps)
    names: dict[int, int] = {}
    copies: list[Step] = []
    outputs, moved = list(schedule.outputs), list[Step]()
    for position, donor in pairs.items():
        writer = writers.get(schedule.outputs[position])
        if writer is None:
            continue
        if _stacks_anew(schedule.steps[writer], outputs[position], donor):
            tensor = values.tensors[outputs[position]]
            target = values.new(tensor.shape, tensor.dtype)
            moved.append(copy_kernel(outputs[position], target, tensor, ""))
            outputs[position] = target
            continue
        others = [index for index in readers.get(donor, ()) if index != writer]
        tensor = values.tensors[donor]
        if tensor.elements and any(not earlier[writer] >> index & 1 for index in others):
            names[donor] = values.new(tensor.shape, tensor.dtype)
            copies.append(copy_kernel(donor, names[donor], tensor, ""))
    if not copies and not moved:
        return schedule
    steps = [on_values(step, names) if not names.keys().isdisjoint(step.reads) else step for step in schedule.steps]
    return replace(schedule, steps=(*copies, *steps, *moved), outputs=tuple(outputs))


def _stacks_anew(step: Step, output: int, donor: int) -> bool:
    """Whether a step is a loop that reads an argument and carries the output that takes its memory in other memory."""
    if not isinstance(step, LoopStep) or donor not in step.reads:
        return False
    return any(each.result == output and each.initial != donor for each in step.carried)


def _earlier(steps: Sequence[Step]) -> list[int]:
    """For each step, those that it waits for, at first or second hand: a number with their bits set."""
    found: list[int] = []
    for waits in dependencies(steps):
        bits = 0
        for index in waits:
            bits |= found[index] | 1 << index
        found.append(bits)
    return found
