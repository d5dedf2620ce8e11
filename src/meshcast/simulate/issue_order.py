"""In which order one rank issues its steps: fixed before any time is known.

Greedy scheduling by measured times has anomalies (Graham 1969: with shorter tasks the whole can take longer). To keep
"faster hardware is never slower" a theorem, orders are planned on nominal costs that no hardware enters, each stream
then runs its steps in that order, and of a few candidate orders the fastest counts. For a fixed order every start is a
maximum over sums of durations, hence monotone in them, and so is the minimum over candidates.

A candidate is what a latency-hiding scheduler gets when it believes that a byte sent costs as much as `w` bytes of
memory traffic: of the steps that nothing holds back, the first in program order goes next on its stream. `w = 0` gives
program order; larger ones start collectives early and put independent work behind them.

Streams are numbered: 0 computes, 1 and up are channels of collectives, one for each group of devices unless
`Scheduling.channels` says otherwise. Which collective takes which is fixed here too.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.base import KeptBeside
from meshcast.lower import BranchStep, Kernel, LoopStep, Schedule, Step, dependencies
from meshcast.simulate.scheduling import Scheduling
from meshcast.simulate.timeline import COMPUTE, COPY, stream_of

# Bytes of memory traffic that take as long as a byte sent: none (program order), and the powers of two next to what an H100
# has by its data sheet, 3.35 TB/s of memory over 450 GB/s of NVLink (7.4) and over 50 GB/s of InfiniBand (67). Fixed for
# all hardware on purpose, see above: a device with another ratio has the fastest of these orders, not one of its own.
BYTE_WEIGHTS = (0.0, 8.0, 64.0)
FEW_GATHERS = 2  # one that is used and one that is prefetched, as many as PyTorch's FSDP has in flight
# FLOPs of dense 16-bit products that take as long as a byte of memory traffic: peak over bandwidth of the data sheets is 139
# for a V100, 153 for an A100 of 80 GB, 229 for a TPU v4, 295 for an H100. A round number among them.
FLOPS_PER_BYTE = 200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """A block's steps, the plans of its loop bodies and branches, and the orders to try.

    `before[i]` are the steps that step i waits for, `lanes[i]` the stream it runs on. A block that runs nothing beside
    its compute kernels has one stream and one order.
    """

    steps: tuple[Step, ...]
    bodies: tuple[tuple[BlockPlan, ...], ...]  # one entry a step; empty for kernels
    before: tuple[tuple[int, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    lanes: tuple[int, ...]
    channels: int  # streams of collectives, of the whole program
    concurrent: bool  # it has collectives, or copies that run beside compute
    copies: bool  # it has copies that run beside compute
    nominal: float  # bytes


@dataclass(frozen=True, slots=True)
class Channels:
    """Which channel the collectives of a group take: in the order in which groups are met, as many as there may be."""

    most: int
    by_group: dict[object, int]

    def of(self, kernel: Kernel) -> int:
        """The channel of a collective, from 1."""
        assert kernel.collective is not None
        group = kernel.collective.group
        found = self.by_group.get(group)
        if found is None:
            found = len(self.by_group)
            self.by_group[group] = found = 1 + (found % self.most if self.most else found)
        return found

    @property
    def count(self) -> int:
        """How many there are."""
        return max(self.by_group.values(), default=0)


_PLANS: KeptBeside[BlockPlan] = KeptBeside()


def plan(schedule: Schedule, scheduling: Scheduling | None = None, *, reorder: bool = True) -> BlockPlan:
    """The plan of a block and of everything inside it; no hardware enters, so that a few are kept for other hardware to ask.

    Args:
        schedule: Steps in program order.
        scheduling: What the scheduler may do.
        reorder: Whether a scheduler may still move them; a compiler's own schedule stays as it is.
    """
    chosen = scheduling or Scheduling()
    return _PLANS.of(schedule, (chosen, reorder), lambda: _planned(schedule, chosen, reorder=reorder))


def _planned(schedule: Schedule, scheduling: Scheduling, *, reorder: bool) -> BlockPlan:
    channels = Channels(scheduling.channels, {})
    for kernel, _ in schedule.walk():
        if kernel.collective is not None:
            channels.of(kernel)
    return _Planner(scheduling, channels, reorder).block(schedule)


class _Planner:
    def __init__(self, scheduling: Scheduling, channels: Channels, reorder: bool) -> None:
        self._scheduling = scheduling
        self._channels = channels
        self._reorder = reorder

    def block(self, schedule: Schedule) -> BlockPlan:
        steps = schedule.steps
        bodies = tuple(self._bodies(step) for step in steps)
        concurrent = any(isinstance(step, Kernel) and stream_of(step) != COMPUTE for step in steps)
        nominal = [_nominal(step, inner) for step, inner in zip(steps, bodies, strict=True)]
        before: tuple[tuple[int, ...], ...] = ()
        orders: tuple[tuple[int, ...], ...] = (tuple(range(len(steps))),)
        lanes: tuple[int, ...] = ()
        if concurrent:
            lanes = tuple(self._channels.of(s) if isinstance(s, Kernel) and s.collective else 0 for s in steps)
            before = self._before(steps)
            if self._ideal(steps):
                # Loops have the device to themselves: all that can overlap does so before them.
                kernels = [index for index, step in enumerate(steps) if isinstance(step, Kernel)]
                orders = ((*kernels, *sorted(set(range(len(steps))) - set(kernels))),)
            elif self._reorder and self._scheduling.scheduler == "latency-hiding":
                sent = [c.sent_bytes if isinstance(s, Kernel) and (c := s.collective) else 0.0 for s in steps]
                weighed = [[n + w * s for n, s in zip(nominal, sent, strict=True)] for w in BYTE_WEIGHTS]
                found = [_list_schedule(steps, costs, before, lanes) for costs in weighed]
                # All gathers first can stand in the way of what is needed sooner: also tried with few of them ahead.
                few = _few_gathers(steps, before, FEW_GATHERS)
                if few != before:
                    found += [_list_schedule(steps, costs, few, lanes) for costs in weighed[1:]]
                orders = tuple(dict.fromkeys(found))
        return BlockPlan(
            steps=steps,
            bodies=bodies,
            before=before,
            orders=orders,
            lanes=lanes,
            channels=self._channels.count,
            concurrent=concurrent,
            copies=concurrent and any(isinstance(step, Kernel) and stream_of(step) == COPY for step in steps),
            nominal=sum(nominal),
        )

    def _bodies(self, step: Step) -> tuple[BlockPlan, ...]:
        if isinstance(step, LoopStep):
            return (self.block(step.body),)
        return tuple(self.block(body) for body in step.bodies) if isinstance(step, BranchStep) else ()

    def _ideal(self, steps: tuple[Step, ...]) -> bool:
        """Whether nothing waits for anything; a compiler's copies beside compute keep their places."""
        copied = any(isinstance(step, Kernel) and stream_of(step) == COPY for step in steps)
        return self._scheduling.scheduler == "ideal" and not copied

    def _before(self, steps: tuple[Step, ...]) -> tuple[tuple[int, ...], ...]:
        if self._scheduling.scheduler == "serial":
            return tuple((index - 1,) if index else () for index in range(len(steps)))
        if self._ideal(steps):
            return ((),) * len(steps)
        before = _dependencies(steps, issued=not self._reorder)
        bounded = self._reorder and self._scheduling.scheduler == "latency-hiding" and self._scheduling.gathers
        return _few_gathers(steps, before, self._scheduling.gathers) if bounded else before


def _few_gathers(
    steps: tuple[Step, ...], before: tuple[tuple[int, ...], ...], limit: int
) -> tuple[tuple[int, ...], ...]:
    """The waits, with every all-gather also waiting for the first use of the one that comes `limit` before it.

    Gathers count in the order of their first uses x_1 <= x_2 <= ... No cycle arises: let a gather rank just below its
    first use and every other step at its place in the program. All waits then lead upwards, and the new ones are only
    made where they do: not where both gathers are needed at once, nor where a gather itself uses the other.
    """
    first_use: dict[int, int] = {}
    for index, waits in enumerate(before):
        for earlier in waits:
            first_use.setdefault(earlier, index)
    gathers = sorted(
        (first_use[index], index)
        for index, step in enumerate(steps)
        if isinstance(step, Kernel)
        and step.collective is not None
        and step.collective.kind == "all_gather"
        and index in first_use
    )
    waits_of = [set(waits) for waits in before]
    rank = {index: use - 0.5 for use, index in gathers}
    for (freed, _), (_, index) in zip(gathers, gathers[limit:], strict=False):
        if rank.get(freed, freed) < rank[index]:
            waits_of[index].add(freed)
    return tuple(tuple(sorted(waits)) for waits in waits_of)


def _nominal(step: Step, bodies: Sequence[BlockPlan]) -> float:
    """Bytes of memory traffic that would take as long as the step; nothing for collectives."""
    if isinstance(step, Kernel):
        moved = step.read_bytes + step.written_bytes
        return 0.0 if step.collective else max(moved, (step.matrix_flops + step.vector_flops) / FLOPS_PER_BYTE)
    trips = step.trips if isinstance(step, LoopStep) else 1
    return trips * max((body.nominal for body in bodies), default=0.0)


def _dependencies(steps: tuple[Step, ...], *, issued: bool = False) -> tuple[tuple[int, ...], ...]:
    """For each step, the earlier steps it waits for (`lower.dependencies`).

    In a compiler's own schedule (`issued`) a collective also waits for the compute stream to reach its place, and what
    comes after a `blocking` one waits for that. No time enters: starts stay monotone in durations.
    """
    before = dependencies(steps)
    computed: int | None = None  # the latest step of the compute stream
    blocked: int | None = None  # the latest blocking collective
    for index, (step, waits) in enumerate(zip(steps, before, strict=True)):
        if blocked is not None:
            waits.add(blocked)
        if not isinstance(step, Kernel) or stream_of(step) == COMPUTE:
            computed = index
        elif issued and step.collective is not None:
            if computed is not None:
                waits.add(computed)
            blocked = index if "blocking" in step.flags else blocked
    return tuple(tuple(sorted(waits)) for waits in before)


def _list_schedule(
    steps: tuple[Step, ...], costs: Sequence[float], before: Sequence[Sequence[int]], lane: Sequence[int]
) -> tuple[int, ...]:
    """Steps in the order they start when each stream takes the first that is ready; loops and branches take all."""
    successors: list[list[int]] = [[] for _ in steps]
    missing = [len(waits) for waits in before]
    for index, waits in enumerate(before):
        for earlier in waits:
            successors[earlier].append(index)
    streams = sorted({0, *lane})
    barrier = [not isinstance(s, Kernel) for s in steps]
    runnable: dict[int, list[int]] = {stream: [] for stream in streams}  # ready, by program order
    arriving: dict[int, list[tuple[float, int]]] = {stream: [] for stream in streams}  # will be, by time
    ready_at = [0.0] * len(steps)
    free = dict.fromkeys(streams, 0.0)
    for index, count in enumerate(missing):
        if count == 0:
            runnable[lane[index]].append(index)
    order: list[int] = []
    while len(order) < len(steps):
        best: tuple[float, int] | None = None
        for stream in streams:
            while arriving[stream] and arriving[stream][0][0] <= free[stream]:
                heapq.heappush(runnable[stream], heapq.heappop(arriving[stream])[1])
            if runnable[stream]:
                start, first = free[stream], runnable[stream][0]
            elif arriving[stream]:
                start, first = arriving[stream][0]
            else:
                continue
            start = max(start, *free.values()) if barrier[first] else start
            if best is None or start < best[0]:
                best = (start, stream)
        assert best is not None, "a schedule's dependencies form a cycle"
        start, stream = best
        index = heapq.heappop(runnable[stream]) if runnable[stream] else heapq.heappop(arriving[stream])[1]
        order.append(index)
        end = start + costs[index]
        free[stream] = end
        if barrier[index]:
            free = dict.fromkeys(streams, end)
        for successor in successors[index]:
            missing[successor] -= 1
            ready_at[successor] = max(ready_at[successor], end)
            if missing[successor] == 0:
                heapq.heappush(arriving[lane[successor]], (ready_at[successor], successor))
    return tuple(order)
