"""When the steps of one block run, in a given order: as a chain of maxima, or by events where speeds change.

Where nothing that is under way slows anything else, `start = max(end of the stream's previous step, ends of the steps it
waits for)` and `end = start + duration`: maxima and sums, hence monotone in durations.

Where collectives share links, or take cores and memory from compute (`simulate.contention`), time goes from event to
event: between two of them every stream advances its step at a constant speed. Speeds never exceed 1 and, with `r` the least
of them, a block lasts at least as long as without contention and at most `1 / r` times that: whoever runs with all
durations stretched by `1 / r` starts everything no earlier. That faster links never make a step slower is a theorem of the first
kind of placement; of the second, a collective that ends earlier can let another begin beside a kernel which it did
not slow before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshcast.estimate.chain import KernelEstimate
from meshcast.lower.kernel import Kernel
from meshcast.simulate.contention import Rates
from meshcast.simulate.copies import Copies
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.timeline import COPY, stream_of

# Steps that should end together, as sums of durations say, end in one event.
TOGETHER = 1e-12


@dataclass(frozen=True, slots=True)
class Length:
    """Seconds of a step or block: with the gap after its last kernel, and without; and how long memory is free in it."""

    all: float
    last: float
    free: float = 0.0

    def times(self, trips: int) -> Length:
        """Of so many in a row."""
        return Length(trips * self.all, (trips - 1) * self.all + self.last, trips * self.free) if trips else NOTHING


NOTHING = Length(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Placed:
    """A block's steps in time."""

    length: Length
    order: tuple[int, ...]
    starts: Sequence[float]
    ends: Sequence[float]


def place(
    block: BlockPlan,
    lengths: Sequence[Length],
    estimates: Sequence[KernelEstimate | None],
    rates: Rates | None,
) -> Placed:
    """The fastest of a block's orders; with `rates`, slowed by what is under way at once."""
    if not block.concurrent:
        return _in_sequence(block, lengths)
    runs = [_in_order(block, order, lengths) for order in block.orders]
    fastest = min(runs, key=lambda run: run.length.all)
    if rates is None or block.copies:
        return replace(fastest, length=replace(fastest.length, last=min(run.length.last for run in runs)))
    return _Events(block, lengths, estimates, rates).place(fastest.order)


def _in_sequence(block: BlockPlan, lengths: Sequence[Length]) -> Placed:
    starts: list[float] = []
    now = last = free = 0.0
    for length in lengths:
        starts.append(now)
        if length.all:
            last = now + length.last
        now += length.all
        free += length.free
    ends = [start + length.all for start, length in zip(starts, lengths, strict=True)]
    return Placed(Length(now, last, free), block.orders[0], starts, ends)


def _in_order(block: BlockPlan, order: tuple[int, ...], lengths: Sequence[Length]) -> Placed:
    starts, ends = [0.0] * len(order), [0.0] * len(order)
    busy_until = [0.0] * (block.channels + 1)  # by stream
    compute = last = 0.0
    copies = Copies(starts, ends)
    for index in order:
        step, seconds, lane = block.steps[index], lengths[index].all, block.lanes[index]
        if isinstance(step, Kernel) and stream_of(step) == COPY:
            copies.issue(index, seconds, at=compute, next_step="prefetch" in step.flags)
            continue
        # Of a collective too: the core itself waits for a copy (XLA's `copy-done`) before it starts the collective, so
        # all compute that stands behind it in the compiler's order waits as well.
        compute = copies.waited_for(block.before[index], compute)
        start = max((ends[earlier] for earlier in block.before[index]), default=0.0)
        if lane:
            start = max(start, busy_until[lane])
            busy_until[lane] = ends[index] = start + seconds
        else:
            start = max(start, compute)
            if not isinstance(step, Kernel):
                start = max(start, *busy_until)
                busy_until = [start + seconds] * len(busy_until)
            copies.run_beside(compute, start, free=start - compute)
            copies.run_beside(start, start + seconds, free=lengths[index].free)
            compute = ends[index] = start + seconds
        starts[index] = start
        if seconds:
            last = max(last, start + lengths[index].last)
    done = copies.finished(compute)
    if done > compute:
        compute, last = done, max(last, done)
    return Placed(Length(max(compute, *busy_until), last, copies.unused), order, starts, ends)


@dataclass(slots=True)
class _Running:
    """A step under way: what is left of it at `since`, and its speed from there on."""

    index: int
    left: float
    since: float
    speed: float = 1.0

    @property
    def end(self) -> float:
        return self.since + self.left / self.speed

    def at(self, now: float, speed: float) -> None:
        if speed != self.speed:  # while it keeps its speed, its end stays what it is to the last bit
            self.left = max(0.0, self.left - (now - self.since) * self.speed)
            self.since, self.speed = now, speed


class _Events:
    """One block, from event to event. Loops and branches have the device to themselves: they cut it into parts."""

    def __init__(
        self,
        block: BlockPlan,
        lengths: Sequence[Length],
        estimates: Sequence[KernelEstimate | None],
        rates: Rates,
    ) -> None:
        self._block = block
        self._lengths = lengths
        self._estimates = estimates
        self._rates = rates
        self._starts = [0.0] * len(lengths)
        self._ends = [0.0] * len(lengths)
        self._done = [False] * len(lengths)

    def place(self, order: tuple[int, ...]) -> Placed:
        block, lengths, now = self._block, self._lengths, 0.0
        part: list[int] = []
        for index in order:
            if isinstance(block.steps[index], Kernel):
                part.append(index)
                continue
            now = self._part(part, now)
            part = []
            self._starts[index] = now
            now = self._ends[index] = now + lengths[index].all
            self._done[index] = True
        now = self._part(part, now)
        last, busy = 0.0, 0.0
        for index, length in enumerate(lengths):
            if length.all:
                last = max(last, self._ends[index] - (length.all - length.last))
            busy += length.all - length.free if not block.lanes[index] else 0.0
        return Placed(Length(now, last, max(0.0, now - busy)), order, self._starts, self._ends)

    def _part(self, part: Sequence[int], now: float) -> float:
        """Runs kernels of several streams, each in its order; returns when all have ended."""
        waiting: dict[int, deque[int]] = {}
        for index in part:
            waiting.setdefault(self._block.lanes[index], deque()).append(index)
        running: dict[int, _Running] = {}
        while waiting or running:
            self._begin(waiting, running, now)
            self._set_speeds(running, now)
            assert running, "a schedule's dependencies form a cycle"
            now = min(step.end for step in running.values())
            together = now * (1 + TOGETHER)
            ended = [lane for lane, step in running.items() if step.end <= together]
            for lane in ended:
                index = running.pop(lane).index
                self._ends[index] = now
                self._done[index] = True
        return now

    def _begin(self, waiting: dict[int, deque[int]], running: dict[int, _Running], now: float) -> None:
        """Starts what can: the first of each free stream, once all that it waits for has ended."""
        for lane in list(waiting):
            queue = waiting[lane]
            if lane in running or not all(self._done[earlier] for earlier in self._block.before[queue[0]]):
                continue
            index = queue.popleft()
            if not queue:
                del waiting[lane]
            self._starts[index] = now
            running[lane] = _Running(index, self._lengths[index].all, now)

    def _set_speeds(self, running: dict[int, _Running], now: float) -> None:
        computing = running.get(0)
        if computing is not None and len(running) == 1:
            computing.at(now, 1.0)
            return
        active: list[Kernel] = []
        lasting: list[float] = []
        sending: list[_Running] = []
        for lane, step in running.items():
            kernel = self._block.steps[step.index]
            if lane and step.left > 0:
                assert isinstance(kernel, Kernel)
                active.append(kernel)
                lasting.append(self._lengths[step.index].all)
                sending.append(step)
        estimate = self._estimates[computing.index] if computing is not None else None
        speed, shares = self._rates.of(estimate, active, lasting)
        if computing is not None:
            # The gap behind a kernel is no work: it is not slowed, and thins the speed of kernel and gap together.
            whole = self._lengths[computing.index].all
            part = estimate.time if estimate is not None else whole
            slowed = whole + part / speed - part
            computing.at(now, whole / slowed if slowed else 1.0)
        for step, share in zip(sending, shares, strict=True):
            step.at(now, share)
