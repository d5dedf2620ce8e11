"""Loops of a schedule by their labels: how often they are entered, what is inside what, and the same program with other turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshcast.lower.kernel import BranchStep, LoopStep, LoweredProgram, Schedule, Step


def loop_entries(schedule: Schedule) -> dict[str, int]:
    """How often each loop is entered in a run, by label."""
    found: dict[str, int] = {}
    for step, count, _ in _loops(schedule, 1, ()):
        found[step.label] = found.get(step.label, 0) + count
    return found


def loops_around(schedule: Schedule) -> dict[str, tuple[str, ...]]:
    """The labels of the loops that each loop is in, the outermost first, by label."""
    return {step.label: around for step, _, around in _loops(schedule, 1, ())}


def _loops(schedule: Schedule, count: int, around: tuple[str, ...]) -> Iterator[tuple[LoopStep, int, tuple[str, ...]]]:
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            yield step, count, around
            yield from _loops(step.body, count * step.trips, (*around, step.label))
        elif isinstance(step, BranchStep):
            for body in step.bodies:
                yield from _loops(body, count, around)


def with_more_turns(lowered: LoweredProgram, more: Mapping[str, int]) -> LoweredProgram:
    """The same kernels with loops that take more turns, or fewer, by label; none takes fewer than no turn."""
    return replace(lowered, schedule=_schedule(lowered.schedule, more))


def _schedule(schedule: Schedule, more: Mapping[str, int]) -> Schedule:
    return replace(schedule, steps=tuple(_step(step, more) for step in schedule.steps))


def _step(step: Step, more: Mapping[str, int]) -> Step:
    if isinstance(step, LoopStep):
        return replace(step, body=_schedule(step.body, more), trips=max(0, step.trips + more.get(step.label, 0)))
    if isinstance(step, BranchStep):
        return replace(step, bodies=tuple(_schedule(body, more) for body in step.bodies))
    return step
