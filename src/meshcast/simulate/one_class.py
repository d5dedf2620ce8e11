"""One rank's block in time, where ranks are alike: what `block_times` and `events` say of one class, in one loop each.

Most blocks are of this kind, and a sweep places them by the thousand: nothing is kept by rank here, no rank meets another, and a
step is as long whenever it starts. The sums are those of the general way, in the same order, so that both agree to the last bit
(`tests/simulate/test_one_class.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from meshcast.base import KeptBeside
from meshcast.estimate import KernelEstimate
from meshcast.lower import Kernel
from meshcast.simulate.contention import SpeedShares, Together
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length

# Steps that should end together, as sums of durations say, end in one event.
TOGETHER = 1e-12

Times = tuple[Length, list[float], list[float]]  # the block's length, and when each of its steps starts and ends


# A step of an order: its number, its stream, what it waits for on other streams, and whether it takes all of them.
Link = tuple[int, int, tuple[int, ...], bool]
_CHAINS: KeptBeside[tuple[Link, ...]] = KeptBeside(of_program=16)  # some orders for each block


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
    events = _EventsAlone(block, lengths, estimates, rates)
    now = waited = 0.0
    for part, index in parts_of(block, order):
        if part:
            now = events.run(part, now)
        if index is not None:
            events.starts[index] = now
            now = events.ends[index] = now + lengths[index].all
            events.done[index] = True
            waited += lengths[index].waited
    ends = events.ends
    last = busy = 0.0
    for index, length in enumerate(lengths):
        if length.all:
            last = max(last, ends[index] - (length.all - length.last))
        busy += length.all - length.free if not block.lanes[index] else 0.0
    return Length(now, last, max(0.0, now - busy), waited), events.starts, ends


# By stream, in their order: kernels and what each waits for.
BlocksAlone = dict[int, tuple[tuple[int, tuple[int, ...]], ...]]
_PARTS: KeptBeside[tuple[tuple[BlocksAlone, int | None], ...]] = KeptBeside(of_program=16)


def parts_of(block: BlockPlan, order: tuple[int, ...]) -> tuple[tuple[BlocksAlone, int | None], ...]:
    """Kernels up to each step that takes all streams, with that step; those behind the last of them with none."""
    return _PARTS.of(block, order, lambda: tuple(_found_parts(chain_of(block, order))))


def _found_parts(chain: Sequence[Link]) -> Iterator[tuple[BlocksAlone, int | None]]:
    part: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for index, lane, waits, whole in chain:
        if whole:
            yield {lane: tuple(queue) for lane, queue in part.items()}, index
            part = {}
        else:
            part.setdefault(lane, []).append((index, waits))
    yield {lane: tuple(queue) for lane, queue in part.items()}, None


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


class _EventsAlone:
    """Kernels of several streams, each in its order."""

    def __init__(
        self,
        block: BlockPlan,
        lengths: Sequence[Length],
        estimates: Sequence[KernelEstimate | None],
        rates: SpeedShares,
    ) -> None:
        count = len(block.steps)
        self._block, self._lengths, self._estimates, self._rates = block, lengths, estimates, rates
        self._together: dict[tuple[int, ...], Together] = {}  # by the steps that are under way
        self.starts, self.ends, self.done = [0.0] * count, [0.0] * count, [False] * count

    def run(self, part: BlocksAlone, now: float) -> float:
        """Runs kernels from `now` on; when all of them have ended."""
        starts, ends, done, lengths = self.starts, self.ends, self.done, self._lengths
        waiting = dict.fromkeys(part, 0)  # by stream, the place of the next one
        running: dict[int, _UnderWay] = {}
        finished = now

        def ready(lane: int) -> bool:
            for earlier in part[lane][waiting[lane]][1]:  # noqa: SIM110  # a generator would take twice as long
                if not done[earlier]:
                    return False
            return True

        def taken(lane: int) -> int:
            queue, place = part[lane], waiting[lane]
            if place + 1 < len(queue):
                waiting[lane] = place + 1
            else:
                del waiting[lane]
            index = queue[place][0]
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
            self._set_speeds(running, now)
            now = min([step.end for step in running.values()], default=math.inf)
            assert now < math.inf, "a schedule's dependencies form a cycle"
            together = now * (1 + TOGETHER)
            for lane in [lane for lane, step in running.items() if step.end <= together]:
                index = running.pop(lane).index
                ends[index] = finished = now
                done[index] = True
        return finished

    def _set_speeds(self, running: dict[int, _UnderWay], now: float) -> None:
        """The speeds of what runs at once."""
        computing = running.get(0)
        if computing is not None and len(running) == 1:
            computing.at(now, 1.0)
            return
        sending = [step for lane, step in running.items() if lane and step.left > 0]
        key = tuple([step.index for step in sending])
        together = self._together.get(key)
        if together is None:
            active = [self._block.steps[index] for index in key]
            lasting = [self._lengths[index].all for index in key]
            together = self._together[key] = self._rates.together(active, lasting)  # type: ignore[arg-type]  # kernels
        estimate = self._estimates[computing.index] if computing is not None else None
        speed, shares = self._rates.beside(estimate, together)
        if computing is not None:
            # The gap behind a kernel is no work: it is not slowed, and thins the speed of kernel and gap together.
            length = self._lengths[computing.index]
            slowed = length.all + length.last / speed - length.last
            computing.at(now, length.all / slowed if slowed else 1.0)
        for step, share in zip(sending, shares, strict=True):
            step.at(now, share)
