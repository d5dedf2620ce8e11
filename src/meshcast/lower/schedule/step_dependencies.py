"""What steps of a block wait for, and the same steps on other values."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step


def dependencies(steps: Sequence[Step]) -> list[set[int]]:
    """For each step, the earlier steps it waits for: writers of what it reads, and readers of what it overwrites.

    The second kind is for in-place updates, which must not touch a buffer while a collective still sends from it. All
    lead forward in program order, so there is no cycle.
    """
    producer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    before: list[set[int]] = []
    for index, step in enumerate(steps):
        overwritten = step.updates if isinstance(step, Kernel) else ()
        waits = {producer[value] for value in (*step.reads, *overwritten) if value in producer}
        for value in overwritten:
            waits.update(readers.get(value, ()))
        before.append(waits)
        for value in step.reads:
            readers.setdefault(value, []).append(index)
        for value in step.writes:
            producer[value] = index
    return before


def ordered(before: Sequence[set[int]], place: Sequence[float]) -> list[int]:
    """Steps in an order that respects what they wait for; of those that can run, the one with the least `place`."""
    successors: list[list[int]] = [[] for _ in before]
    missing = [len(waits) for waits in before]
    for index, waits in enumerate(before):
        for earlier in waits:
            successors[earlier].append(index)
    ready = [(place[index], index) for index, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)[1]
        order.append(index)
        for successor in successors[index]:
            missing[successor] -= 1
            if not missing[successor]:
                heapq.heappush(ready, (place[successor], successor))
    assert len(order) == len(before), "steps wait for each other in a circle"
    return order


def closure(start: Sequence[int], edges: Sequence[set[int]]) -> set[int]:
    """Steps that some edges lead to from `start`, these included."""
    found, pending = set(start), list(start)
    while pending:
        for index in edges[pending.pop()]:
            if index not in found:
                found.add(index)
                pending.append(index)
    return found


def on_values(step: Step, names: Mapping[int, int]) -> Step:
    """The step with values replaced, inside of its bodies too."""

    def named(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([names.get(value, value) for value in values])

    if isinstance(step, Kernel):
        return replace(step, reads=named(step.reads), writes=named(step.writes), updates=named(step.updates))

    def inside(body: Schedule) -> Schedule:
        return Schedule(
            inputs=body.inputs,
            outputs=named(body.outputs),
            steps=tuple(on_values(inner, names) for inner in body.steps),
        )

    if isinstance(step, LoopStep):
        return replace(step, body=inside(step.body), reads=named(step.reads), writes=named(step.writes))
    assert isinstance(step, BranchStep)
    bodies = tuple(inside(body) for body in step.bodies)
    return BranchStep(bodies=bodies, reads=named(step.reads), writes=named(step.writes))
