"""Layers that a framework runs one after another, where our programs have a loop over stacked arrays.

A scan writes what each turn keeps into a slot of a stacked array, and its backward pass copies the slot out again. Frameworks
whose loops are Python's have no stacks: what a layer keeps stays where it was written, a layer's weights and gradients are
arrays of their own. Here the copies go: what was written into a slot is the stack, and what was read from it too. Memory is
the same, as the stack stands for its slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, Schedule, Step
from meshcast.lower.schedule.inner_blocks import only_fills
from meshcast.workload import Tensor

Layers = Literal["scanned", "separate", "accumulating"]


def with_separate_layers(schedule: Schedule, tensors: Sequence[Tensor]) -> Schedule:
    """The schedule without copies into and out of stacked arrays, and without filling these before a loop.

    Args:
        schedule: The schedule of a block.
        tensors: Types of all values.
    """
    stacks: set[int] = set()
    steps: list[Step] = []
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            unstacked = _without_slots(step, tensors)
            stacks |= _initial_stacks(unstacked)
            steps.append(unstacked)
        elif isinstance(step, BranchStep):
            steps.append(replace(step, bodies=tuple(with_separate_layers(body, tensors) for body in step.bodies)))
        else:
            steps.append(step)
    return replace(schedule, steps=tuple(step for step in steps if not only_fills(step, stacks)))


def _initial_stacks(loop: LoopStep) -> set[int]:
    """What a loop without slots is given and hands on as it is."""
    return {value.initial for value in loop.carried if value.unchanged}


def _without_slots(loop: LoopStep, tensors: Sequence[Tensor]) -> LoopStep:
    """A loop whose turns neither copy into their slots nor out of them."""
    body = loop.body
    # What is gathered or sent is found by its slice (`lower.overlap.prefetch`).
    sent = {value for step in body.steps if isinstance(step, Kernel) and step.collective for value in step.reads}
    carried = frozenset(body.inputs)
    names: dict[int, int] = {}
    steps: list[Step] = []
    stacks: set[int] = set()  # of loops inside this one
    for original in body.steps:
        step = _renamed(original, names)
        if isinstance(step, LoopStep):
            unstacked = _without_slots(step, tensors)
            stacks |= _initial_stacks(unstacked)
            steps.append(unstacked)
        elif isinstance(step, Kernel) and (stack := _slot(step, loop.trips, carried - sent, tensors)) is not None:
            if sent.isdisjoint(step.writes):
                names[step.writes[0]] = stack
            else:
                steps.append(step)
        else:
            steps.append(step)
    outputs = tuple(names.get(value, value) for value in body.outputs)
    left = tuple(step for step in steps if not only_fills(step, stacks))
    return replace(loop, body=replace(body, steps=left, outputs=outputs))


def _slot(kernel: Kernel, trips: int, carried: frozenset[int], tensors: Sequence[Tensor]) -> int | None:
    """The stack of which a kernel does nothing but write, or read, the slot of one turn."""
    if trips < 2 or kernel.kind is not KernelKind.LOOP_FUSION or len(kernel.writes) != 1:
        return None
    if kernel.updates:
        (stack,) = kernel.updates[:1]
        # What is computed on the way is cheap, and its backward pass could compute it as well: nothing is launched for it.
        filled = trips * kernel.written_bytes == tensors[stack].bytes
        return stack if filled and stack in carried and kernel.ops[-1] == "stablehlo.dynamic_update_slice" else None
    if "copy" not in kernel.flags or "stablehlo.dynamic_slice" not in kernel.ops:
        return None
    slot = tensors[kernel.writes[0]].bytes
    return next((v for v in kernel.reads if v in carried and tensors[v].bytes == trips * slot), None)


def _renamed(step: Step, names: Mapping[int, int]) -> Step:
    if not names or names.keys().isdisjoint(step.reads):
        return step
    reads = tuple(names.get(value, value) for value in step.reads)
    if isinstance(step, Kernel):
        return replace(step, reads=reads, updates=tuple(names.get(value, value) for value in step.updates))
    if isinstance(step, LoopStep):
        return replace(step, reads=reads)
    return replace(step, reads=reads)
