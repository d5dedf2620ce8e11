"""In which order one rank issues its steps: fixed before any time is known.

Greedy scheduling by measured times has anomalies (Graham 1969: with shorter tasks the whole can take longer). To keep
"faster hardware is never slower" a theorem, orders are planned on nominal costs that no hardware enters, each stream
then runs its steps in that order, and of a few candidate orders the fastest counts. For a fixed order every start is a
maximum over sums of durations, hence monotone in them, and so is the minimum over candidates.

A candidate is what a latency-hiding scheduler gets when it believes that a byte sent costs as much as `w` bytes of
memory traffic: of the steps that nothing holds back, the first in program order goes next on its stream. `w = 0` gives
program order; larger ones start collectives early and put independent work behind them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step
from meshcast.simulate.timeline import COMPUTE, stream_of

# Memory bandwidth over link bandwidth: none, within a node (about 8), across nodes (about 64).
BYTE_WEIGHTS = (0.0, 8.0, 64.0)
# FLOPs that take as long as one byte of memory traffic, of the order of every accelerator since 2017.
FLOPS_PER_BYTE = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """A block's steps, the plans of its loop bodies and branches, and the orders to try.

    `before[i]` are the steps that step i waits for. A block that runs nothing beside its compute kernels has one stream
    and one order.
    """

    steps: tuple[Step, ...]
    bodies: tuple[tuple[BlockPlan, ...], ...]  # one entry a step; empty for kernels
    before: tuple[tuple[int, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    concurrent: bool  # it has collectives, or copies that run beside compute
    nominal: float  # bytes


def plan(schedule: Schedule, *, reorder: bool = True) -> BlockPlan:
    """The plan of a block and of everything inside it.

    Args:
        schedule: Steps in program order.
        reorder: Whether a scheduler may still move them; a compiler's own schedule stays as it is.
    """
    steps = schedule.steps
    bodies = tuple(_bodies(step, reorder) for step in steps)
    concurrent = any(isinstance(step, Kernel) and stream_of(step) != COMPUTE for step in steps)
    nominal = [_nominal(step, inner) for step, inner in zip(steps, bodies, strict=True)]
    program_order = tuple(range(len(steps)))
    before: tuple[tuple[int, ...], ...] = ()
    orders: tuple[tuple[int, ...], ...] = (program_order,)
    if concurrent:
        before = _dependencies(steps, issued=not reorder)
        sent = [c.sent_bytes if isinstance(s, Kernel) and (c := s.collective) else 0.0 for s in steps]
        if reorder:
            weighed = ([n + w * s for n, s in zip(nominal, sent, strict=True)] for w in BYTE_WEIGHTS)
            orders = tuple(dict.fromkeys(_list_schedule(steps, costs, before) for costs in weighed))
    return BlockPlan(
        steps=steps, bodies=bodies, before=before, orders=orders, concurrent=concurrent, nominal=sum(nominal)
    )


def _bodies(step: Step, reorder: bool) -> tuple[BlockPlan, ...]:
    if isinstance(step, LoopStep):
        return (plan(step.body, reorder=reorder),)
    return tuple(plan(body, reorder=reorder) for body in step.bodies) if isinstance(step, BranchStep) else ()


def _nominal(step: Step, bodies: Sequence[BlockPlan]) -> float:
    """Bytes of memory traffic that would take as long as the step; nothing for collectives."""
    if isinstance(step, Kernel):
        moved = step.read_bytes + step.written_bytes
        return 0.0 if step.collective else max(moved, (step.matrix_flops + step.vector_flops) / FLOPS_PER_BYTE)
    trips = step.trips if isinstance(step, LoopStep) else 1
    return trips * max((body.nominal for body in bodies), default=0.0)


def _dependencies(steps: tuple[Step, ...], *, issued: bool = False) -> tuple[tuple[int, ...], ...]:
    """For each step, the earlier steps it waits for: writers of what it reads, and readers of what it overwrites.

    The second kind is for in-place updates, which must not touch a buffer while a collective still sends from it. In a
    compiler's own schedule (`issued`) a collective also waits for the compute stream to reach its place, and what comes
    after a `blocking` one waits for that. All
    lead forward in program order, so there is no cycle, and no time enters: starts stay monotone in durations.
    """
    computed: int | None = None  # the latest step of the compute stream
    blocked: int | None = None  # the latest blocking collective
    producer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    before: list[tuple[int, ...]] = []
    for index, step in enumerate(steps):
        overwritten = step.updates if isinstance(step, Kernel) else ()
        waits = {producer[value] for value in (*step.reads, *overwritten) if value in producer}
        for value in overwritten:
            waits.update(readers.get(value, ()))
        if blocked is not None:
            waits.add(blocked)
        if not isinstance(step, Kernel) or stream_of(step) == COMPUTE:
            computed = index
        elif issued and step.collective is not None:
            if computed is not None:
                waits.add(computed)
            blocked = index if "blocking" in step.flags else blocked
        before.append(tuple(sorted(waits)))
        for value in step.reads:
            readers.setdefault(value, []).append(index)
        for value in step.writes:
            producer[value] = index
    return tuple(before)


def _list_schedule(steps: tuple[Step, ...], costs: Sequence[float], before: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Steps in the order they start when each stream takes the first that is ready; loops and branches take both."""
    successors: list[list[int]] = [[] for _ in steps]
    missing = [len(waits) for waits in before]
    for index, waits in enumerate(before):
        for earlier in waits:
            successors[earlier].append(index)
    lane = [1 if isinstance(s, Kernel) and s.collective is not None else 0 for s in steps]
    barrier = [not isinstance(s, Kernel) for s in steps]
    runnable: tuple[list[int], list[int]] = ([], [])  # ready, by program order
    arriving: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])  # will be, by time
    ready_at = [0.0] * len(steps)
    free = [0.0, 0.0]
    for index, count in enumerate(missing):
        if count == 0:
            runnable[lane[index]].append(index)
    order: list[int] = []
    while len(order) < len(steps):
        best: tuple[float, int] | None = None
        for stream in (0, 1):
            while arriving[stream] and arriving[stream][0][0] <= free[stream]:
                heapq.heappush(runnable[stream], heapq.heappop(arriving[stream])[1])
            if runnable[stream]:
                start, first = free[stream], runnable[stream][0]
            elif arriving[stream]:
                start, first = arriving[stream][0]
            else:
                continue
            start = max(start, *free) if barrier[first] else start
            if best is None or start < best[0]:
                best = (start, stream)
        assert best is not None, "a schedule's dependencies form a cycle"
        start, stream = best
        index = heapq.heappop(runnable[stream]) if runnable[stream] else heapq.heappop(arriving[stream])[1]
        order.append(index)
        end = start + costs[index]
        free[stream] = end
        if barrier[index]:
            free = [end, end]
        for successor in successors[index]:
            missing[successor] -= 1
            ready_at[successor] = max(ready_at[successor], end)
            if missing[successor] == 0:
                heapq.heappush(arriving[lane[successor]], (ready_at[successor], successor))
    return tuple(order)
