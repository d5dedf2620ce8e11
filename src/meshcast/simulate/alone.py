"""One rank's block in time, where ranks are alike: what `block_times` and `events` say of one class, in one loop each.

Most blocks are of this kind, and a sweep places them by the thousand: nothing is kept by rank here, no rank meets another, and a
step is as long whenever it starts. The sums are those of the general way, in the same order, so that both agree to the last bit
(`tests/simulate/test_alone.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from meshcast.base import KeptBeside
from meshcast.estimate import KernelEstimate
from meshcast.lower import Kernel
from meshcast.simulate.contention import SpeedShares
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length

# Steps that should end together, as sums of durations say, end in one event.
TOGETHER = 1e-12

Times = tuple[Length, list[float], list[float]]  # the block's length, and when each of its steps starts and ends


# A step of an order: its number, its stream, what it waits for on other streams, and whether it takes all of them.
Link = tuple[int, int, tuple[int, ...], bool]
_CHAINS: KeptBeside[tuple[Link, ...]] = KeptBeside(1024)  # some orders for each block of as many programs as are kept


def chain_of(block: BlockPlan, order: tuple[int, ...]) -> tuple[Link, ...]:
    """A block's steps in an order, each with the waits that count; no time enters, so that all hardware shares them.

    Along a stream ends never decrease. So nothing waits for its own stream but for the step before it, and of several steps of
    another stream the last to be issued is the last to end.
    """
    return _CHAINS.of(block, order, lambda: tuple(_links(block, order)))


def _links(block: BlockPlan, order: Sequence[int]) -> Iterator[Link]:
    place = {index: number for number, index in enumerate(order)}
    for index in order:
        lane = block.lanes[index]
        latest: dict[int, int] = {}
        for earlier in block.before[index]:
            other = block.lanes[earlier]
            if other != lane and (other not in latest or place[latest[other]] < place[earlier]):
                latest[other] = earlier
        yield index, lane, tuple(latest.values()), not isinstance(block.steps[index], Kernel)


def stream_seconds(block: BlockPlan, order: tuple[int, ...], seconds: Sequence[float]) -> float:
    """How long `streams_alone` says that a block takes; nothing else of it."""
    ends = [0.0] * len(seconds)
    busy = [0.0] * (block.channels + 1)
    compute = 0.0
    for index, lane, waits, whole in chain_of(block, order):
        start = busy[lane] if lane else compute
        for earlier in waits:
            if ends[earlier] > start:
                start = ends[earlier]
        if lane:
            ends[index] = busy[lane] = start + seconds[index]
        elif whole:
            compute = ends[index] = max(start, *busy) + seconds[index]
            busy = [compute] * len(busy)
        else:
            compute = ends[index] = start + seconds[index]
    return max(compute, *busy)


def streams_alone(block: BlockPlan, order: tuple[int, ...], lengths: Sequence[Length]) -> Times:
    """Several streams that do not slow each other, without copies beside compute: `start = max(ends of what it waits for)`."""
    count = len(block.steps)
    starts, ends = [0.0] * count, [0.0] * count
    busy = [0.0] * (block.channels + 1)  # by channel; the first is not used
    compute = last = unused = waited = 0.0
    for index, lane, waits, whole in chain_of(block, order):
        length = lengths[index]
        start = busy[lane] if lane else compute
        for earlier in waits:
            if ends[earlier] > start:
                start = ends[earlier]
        if lane:
            end = busy[lane] = start + length.all
        else:
            if whole:  # all streams are its own
                start = max(start, *busy)
                end = start + length.all
                busy = [end] * len(busy)
                waited += length.waited
            else:
                end = start + length.all
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
    order: tuple[int, ...],
    lengths: Sequence[Length],
    estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares,
) -> Times:
    """Streams that slow each other, from event to event; loops and branches have the device to themselves."""
    count = len(block.steps)
    starts, ends, done = [0.0] * count, [0.0] * count, [False] * count
    now = waited = 0.0
    part: list[Link] = []
    for link in chain_of(block, order):
        index, _, _, whole = link
        if not whole:
            part.append(link)
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
    block: BlockPlan, part: Sequence[Link], lengths: Sequence[Length], estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares, now: float, starts: list[float], ends: list[float], done: list[bool],
) -> float:  # fmt: skip
    """Kernels of several streams, each in its order; when all of them have ended."""
    waiting: dict[int, list[tuple[int, list[int]]]] = {}  # by stream, the next one last, each with what it waits for
    for index, lane, waits, _ in part:
        waiting.setdefault(lane, []).append((index, list(waits)))
    for queue in waiting.values():
        queue.reverse()
    running: dict[int, _UnderWay] = {}
    finished = now

    def ready(lane: int) -> bool:
        waits = waiting[lane][-1][1]
        while waits and done[waits[-1]]:
            waits.pop()
        return not waits

    def taken(lane: int) -> int:
        queue = waiting[lane]
        index, _ = queue.pop()
        if not queue:
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
