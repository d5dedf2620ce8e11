"""One rank's block in time, where ranks are alike: what `block_times` and `events` say of one class, in one loop each.

Most blocks are of this kind, and a sweep places them by the thousand: nothing is kept by rank here, no rank meets another, and a
step is as long whenever it starts. The sums are those of the general way, in the same order, so that both agree to the last bit
(`tests/simulate/test_alone.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.estimate import KernelEstimate
from meshcast.lower import Kernel
from meshcast.simulate.contention import SpeedShares
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length

# Steps that should end together, as sums of durations say, end in one event.
TOGETHER = 1e-12

Times = tuple[Length, list[float], list[float]]  # the block's length, and when each of its steps starts and ends


def streams_alone(block: BlockPlan, order: Sequence[int], lengths: Sequence[Length]) -> Times:
    """Several streams that do not slow each other, without copies beside compute: `start = max(ends of what it waits for)`."""
    count = len(block.steps)
    starts, ends = [0.0] * count, [0.0] * count
    busy = [0.0] * (block.channels + 1)  # by channel; the first is not used
    steps, lanes, before = block.steps, block.lanes, block.before
    compute = last = unused = waited = 0.0
    for index in order:
        length, lane = lengths[index], lanes[index]
        start = busy[lane] if lane else compute
        for earlier in before[index]:
            if ends[earlier] > start:
                start = ends[earlier]
        if lane:
            end = busy[lane] = start + length.all
        else:
            if isinstance(steps[index], Kernel):
                end = start + length.all
            else:  # all streams are its own
                start = max(start, *busy)
                end = start + length.all
                busy = [end] * len(busy)
                waited += length.waited
            if start > compute:
                unused += start - compute
            if end > start:
                unused += length.free
            compute = end
        starts[index], ends[index] = start, end
        if length.all:
            last = max(last, start + length.last)
    return Length(max(compute, *busy), last, unused, waited), starts, ends


def events_alone(
    block: BlockPlan,
    order: Sequence[int],
    lengths: Sequence[Length],
    estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares,
) -> Times:
    """Streams that slow each other, from event to event; loops and branches have the device to themselves."""
    count = len(block.steps)
    starts, ends, done = [0.0] * count, [0.0] * count, [False] * count
    now = waited = 0.0
    part: list[int] = []
    for index in order:
        if isinstance(block.steps[index], Kernel):
            part.append(index)
            continue
        now = _part(block, part, lengths, estimates, rates, now, starts, ends, done)
        part = []
        starts[index] = now
        now = ends[index] = now + lengths[index].all
        done[index] = True
        waited += lengths[index].waited
    now = _part(block, part, lengths, estimates, rates, now, starts, ends, done)
    last = busy = 0.0
    for index, length in enumerate(lengths):
        if length.all:
            last = max(last, ends[index] - (length.all - length.last))
        busy += length.all - length.free if not block.lanes[index] else 0.0
    return Length(now, last, max(0.0, now - busy), waited), starts, ends


class _UnderWay:
    """A step under way: what is left of it at `since`, and its speed from there on."""

    __slots__ = ("end", "index", "left", "since", "speed")

    def __init__(self, index: int, left: float, since: float) -> None:
        self.index, self.left, self.since, self.speed = index, left, since, 1.0
        self.end = since + left / 1.0

    def at(self, now: float, speed: float) -> None:
        """It goes on with another speed; while it keeps its speed, its end stays what it is to the last bit."""
        if speed != self.speed:
            self.left = max(0.0, self.left - (now - self.since) * self.speed)
            self.since, self.speed = now, speed
            self.end = now + self.left / speed


def _part(
    block: BlockPlan, part: Sequence[int], lengths: Sequence[Length], estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares, now: float, starts: list[float], ends: list[float], done: list[bool],
) -> float:  # fmt: skip
    """Kernels of several streams, each in its order; when all of them have ended."""
    waiting: dict[int, list[int]] = {}  # by stream, the next one last
    for index in reversed(part):
        waiting.setdefault(block.lanes[index], []).append(index)
    waiting = {lane: waiting[lane] for lane in dict.fromkeys(block.lanes[index] for index in part)}
    before = block.before
    missing = {lane: list(before[queue[-1]]) for lane, queue in waiting.items()}  # what the next one may still wait for
    running: dict[int, _UnderWay] = {}
    finished = now

    def ready(lane: int) -> bool:
        waits = missing[lane]
        while waits and done[waits[-1]]:
            waits.pop()
        return not waits

    def taken(lane: int) -> int:
        queue = waiting[lane]
        index = queue.pop()
        if queue:
            missing[lane] = list(before[queue[-1]])
        else:
            del waiting[lane]
        starts[index] = now
        return index

    while waiting or running:
        if not running and 0 in waiting:
            # While no collective can start, compute has the device to itself: one step follows the other.
            others = [lane for lane in waiting if lane]
            while 0 in waiting and ready(0) and not any(map(ready, others)):
                index = taken(0)
                now = ends[index] = finished = now + lengths[index].all
                done[index] = True
            if not waiting:
                break
        for lane in list(waiting):
            if lane not in running and ready(lane):
                index = taken(lane)
                running[lane] = _UnderWay(index, lengths[index].all, now)
        _set_speeds(block, running, lengths, estimates, rates, now)
        now = min([step.end for step in running.values()], default=math.inf)
        assert now < math.inf, "a schedule's dependencies form a cycle"
        together = now * (1 + TOGETHER)
        for lane in [lane for lane, step in running.items() if step.end <= together]:
            index = running.pop(lane).index
            ends[index] = finished = now
            done[index] = True
    return finished


def _set_speeds(
    block: BlockPlan, running: dict[int, _UnderWay], lengths: Sequence[Length], estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares, now: float,
) -> None:  # fmt: skip
    """The speeds of what runs at once."""
    computing = running.get(0)
    if computing is not None and len(running) == 1:
        computing.at(now, 1.0)
        return
    active: list[Kernel] = []
    lasting: list[float] = []
    sending: list[_UnderWay] = []
    for lane, step in running.items():
        if lane and step.left > 0:
            kernel = block.steps[step.index]
            assert isinstance(kernel, Kernel)
            active.append(kernel)
            lasting.append(lengths[step.index].all)
            sending.append(step)
    estimate = estimates[computing.index] if computing is not None else None
    speed, shares = rates.of(estimate, active, lasting)
    if computing is not None:
        # The gap behind a kernel is no work: it is not slowed, and thins the speed of kernel and gap together.
        length = lengths[computing.index]
        slowed = length.all + length.last / speed - length.last
        computing.at(now, length.all / slowed if slowed else 1.0)
    for step, share in zip(sending, shares, strict=True):
        step.at(now, share)
