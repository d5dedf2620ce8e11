"""Gradients that are added up on each device and reduced once a step, not for every microbatch.

A program of one microbatch sums what its devices made of the weights' gradients, an all-reduce over the axes that split the
tokens (experts, context, positions). Training frameworks let each device add up its own over all microbatches and reduce
the sums behind the last one (PyTorch's `no_sync`, Megatron's gradient buffers), which is the same by linearity. Deferred is
every all-reduce on which nothing but the gradients depends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshcast.base import KeptBeside
from meshcast.lower.kernel import Kernel, LoopStep, Schedule, Step

DeferredKernels = list[tuple[Kernel, int]]


def with_deferred_sums(schedule: Schedule, gradients: frozenset[int]) -> tuple[Schedule, DeferredKernels]:
    """The schedule without the all-reduces that only its gradients need, and these with how often they run.

    Args:
        schedule: The schedule of a whole program.
        gradients: The results that are gradients.
    """
    # Of one schedule the same comes out again, as one object: what is planned for it is found again, too.
    return _KNOWN.of(schedule, gradients, lambda: _deferred(schedule, gradients))


_KNOWN: KeptBeside[tuple[Schedule, DeferredKernels]] = KeptBeside()


def _deferred(schedule: Schedule, gradients: frozenset[int]) -> tuple[Schedule, DeferredKernels]:
    found: DeferredKernels = []
    wanted = {value for value in schedule.outputs if value not in gradients}
    return _without(schedule, wanted, 1, found), found


def _without(schedule: Schedule, wanted: set[int], count: int, found: DeferredKernels) -> Schedule:
    """A block of which the values `wanted` are needed for more than gradients."""
    needed = _needed(schedule, wanted)
    names: dict[int, int] = {}
    steps: list[Step] = []
    for original in schedule.steps:
        step = _renamed(original, names)
        if isinstance(step, LoopStep):
            inner = {each.after for each in step.carried if each.result in needed or each.before in needed}
            step = replace(step, body=_without(step.body, _circulating(step, inner), count * step.trips, found))
        elif isinstance(step, Kernel) and _sums(step) and needed.isdisjoint(step.writes):
            found.append((step, count))
            names.update(zip(step.writes, step.reads, strict=True))
            continue
        steps.append(step)
    outputs = tuple(names.get(value, value) for value in schedule.outputs)
    return replace(schedule, steps=tuple(steps), outputs=outputs)


def _sums(kernel: Kernel) -> bool:
    collective = kernel.collective
    return collective is not None and collective.kind == "all_reduce" and len(kernel.reads) == len(kernel.writes)


def _needed(schedule: Schedule, wanted: set[int]) -> set[int]:
    """All values of a block that those wanted are made of."""
    needed = set(wanted)
    for step in reversed(schedule.steps):
        if needed.isdisjoint(step.writes):
            continue
        if isinstance(step, LoopStep):
            first = {each.after for each in step.carried if each.result in needed}
            inside = _needed(step.body, _circulating(step, first))
            needed.update(each.initial for each in step.carried if each.before in inside)
            needed.update(inside.intersection(step.reads[len(step.writes) :]))
        else:
            needed.update(step.reads)
            if isinstance(step, Kernel):
                needed.update(step.updates)
    return needed


def _circulating(loop: LoopStep, wanted: set[int]) -> set[int]:
    """A loop body's results that are needed, with those that later turns need for them."""
    while True:
        inside = _needed(loop.body, wanted)
        more = wanted | {each.after for each in loop.carried if each.before in inside}
        if more == wanted:
            return wanted
        wanted = more


def _renamed(step: Step, names: Mapping[int, int]) -> Step:
    """A step that reads the terms of sums instead of the sums."""
    if not names or names.keys().isdisjoint(step.reads):
        return step

    def new(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(names.get(value, value) for value in values)

    if isinstance(step, Kernel):
        return replace(step, reads=new(step.reads), updates=new(step.updates))
    if isinstance(step, LoopStep):
        return replace(step, reads=new(step.reads), body=_block(step.body, names))
    return replace(step, reads=new(step.reads), bodies=tuple(_block(body, names) for body in step.bodies))


def _block(schedule: Schedule, names: Mapping[int, int]) -> Schedule:
    steps: Iterator[Step] = (_renamed(step, names) for step in schedule.steps)
    outputs = tuple(names.get(value, value) for value in schedule.outputs)
    return replace(schedule, steps=tuple(steps), outputs=outputs)
