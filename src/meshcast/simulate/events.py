"""A block's steps where what is under way at once slows each other down: from event to event.

Between two events every stream advances its step at a constant speed (`simulate.contention`). Speeds never exceed 1 and,
with `r` the least of them, a block lasts at least as long as without contention and at most `1 / r` times that: whoever
runs with all durations stretched by `1 / r` starts everything no earlier. That faster links, or a faster device, never make a
step slower is a theorem of `simulate.block_times`, not of this: a collective that ends earlier can let another begin
beside a kernel which it did not slow before.

Of several ranks that are not alike each has its own streams. A collective runs on all that meet in it at once, from when
the last has arrived, at the least of the speeds that they leave it; until then it takes nothing from those that wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from meshcast.estimate import KernelEstimate
from meshcast.lower import Kernel
from meshcast.simulate.contention import SpeedShares
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length, Ranks
from meshcast.simulate.one_class import TOGETHER


@dataclass(slots=True, eq=False)
class _Running:
    """A step that some ranks are in: what is left of it at `since`, and its speed from there on.

    It begins when nobody is missing. Each rank leaves it some speed, and it has the least of them.
    """

    index: int
    left: float
    since: float
    missing: int = 0
    ranks: list[int] = field(default_factory=list)
    speed: float = 1.0
    speeds: dict[int, float] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return math.inf if self.missing else self.since + self.left / self.speed

    def at(self, now: float, rank: int, speed: float) -> bool:
        """A rank leaves it another speed; whether its end changes by that."""
        if len(self.ranks) > 1:
            self.speeds[rank] = speed
            speed = min(self.speeds.get(each, 1.0) for each in self.ranks)
        if speed == self.speed:  # while it keeps its speed, its end stays what it is to the last bit
            return False
        self.left = max(0.0, self.left - (now - self.since) * self.speed)
        self.since, self.speed = now, speed
        return True


@dataclass(slots=True, eq=False)
class Events:
    """One block, by class and step. Loops and branches have their device to themselves: they cut it into parts."""

    block: BlockPlan
    ranks: Ranks
    estimates: Sequence[KernelEstimate | None]
    rates: SpeedShares
    lengths: list[Sequence[Length]] = field(init=False)  # by step and class, as they become known
    starts: list[list[float]] = field(init=False)
    ends: list[list[float]] = field(init=False)
    done: list[list[bool]] = field(init=False)
    waited: list[float] = field(init=False)

    def __post_init__(self) -> None:
        count, steps = len(self.ranks.entered), len(self.block.steps)
        self.lengths = [()] * steps
        self.starts = [[0.0] * steps for _ in range(count)]
        self.ends = [[0.0] * steps for _ in range(count)]
        self.done = [[False] * steps for _ in range(count)]
        self.waited = [0.0] * count

    def run(self, order: Sequence[int]) -> list[Length]:
        """Runs all steps; `starts` and `ends` say when."""
        now = list(self.ranks.entered)
        part: list[int] = []
        for index in order:
            if isinstance(self.block.steps[index], Kernel):
                self.lengths[index] = self.ranks.lengths(index, ())
                part.append(index)
                continue
            now = _Part(self, part, now).run()
            part = []
            self.lengths[index] = self.ranks.lengths(index, now)
            for rank, length in enumerate(self.lengths[index]):
                self.starts[rank][index] = now[rank]
                now[rank] = self.ends[rank][index] = now[rank] + length.all
                self.done[rank][index] = True
                self.waited[rank] += length.waited
        now = _Part(self, part, now).run()
        return [self._length(rank, entered, now[rank]) for rank, entered in enumerate(self.ranks.entered)]

    def _length(self, rank: int, entered: float, now: float) -> Length:
        last, busy = entered, 0.0
        for index, lengths in enumerate(self.lengths):
            length = lengths[rank]
            if length.all:
                last = max(last, self.ends[rank][index] - (length.all - length.last))
            busy += length.all - length.free if not self.block.lanes[index] else 0.0
        everything = now - entered
        return Length(everything, last - entered, max(0.0, everything - busy), self.waited[rank])


class _Part:
    """Kernels of several streams, each in its order, on every rank."""

    def __init__(self, events: Events, part: Sequence[int], entered: Sequence[float]) -> None:
        self._all = events
        self._entered = entered
        self._gathering: dict[tuple[int, int], _Running] = {}  # collectives that somebody is missing in, by party
        self._waiting: list[dict[int, deque[int]]] = []  # by rank and stream
        self._running: list[dict[int, _Running]] = [{} for _ in entered]
        for _ in entered:
            queues: dict[int, deque[int]] = {}
            for index in part:
                queues.setdefault(events.block.lanes[index], deque()).append(index)
            self._waiting.append(queues)

    def run(self) -> list[float]:
        """When each rank has run all of it."""
        done = list(self._entered)
        if not self._waiting[0]:
            return done
        coming = sorted(range(len(done)), key=lambda rank: -self._entered[rank])
        next_end = [math.inf] * len(done)
        now = self._entered[coming[-1]]
        touched: set[int] = set()
        while True:
            while coming and self._entered[coming[-1]] <= now:
                touched.add(coming.pop())
            for rank in self._changed(touched, now):
                next_end[rank] = min((step.end for step in self._running[rank].values()), default=math.inf)
            now = min(min(next_end), self._entered[coming[-1]] if coming else math.inf)
            if now == math.inf:
                break
            together = now * (1 + TOGETHER)
            touched = {rank for rank, end in enumerate(next_end) if end <= together}
            for rank in touched:
                self._end(rank, now, together)
                done[rank] = now
        assert not any((*self._waiting, *self._running)), "a schedule's dependencies form a cycle"
        return done

    def _changed(self, touched: Iterable[int], now: float) -> set[int]:
        """Starts what can where something has ended; the ranks on which some step now ends at another time."""
        begun: set[int] = set()
        for rank in touched:
            begun |= self._begin(rank, now)
        begun.update(touched)
        changed = set(begun)
        for rank in begun:
            changed |= self._set_speeds(rank, now)
        return changed

    def _end(self, rank: int, now: float, together: float) -> None:
        running = self._running[rank]
        for lane in [lane for lane, step in running.items() if step.end <= together]:
            index = running.pop(lane).index
            self._all.ends[rank][index] = now
            self._all.done[rank][index] = True

    def _begin(self, rank: int, now: float) -> set[int]:
        """The first of each free stream, once all that it waits for has ended; the ranks on which something starts."""
        block, done = self._all.block, self._all.done[rank]
        waiting, running = self._waiting[rank], self._running[rank]
        begun: set[int] = set()
        for lane in list(waiting):
            queue = waiting[lane]
            if lane in running or not all(done[earlier] for earlier in block.before[queue[0]]):
                continue
            index = queue.popleft()
            if not queue:
                del waiting[lane]
            step = running[lane] = self._entering(rank, lane, index, now)
            if not step.missing:
                begun.update(step.ranks)
        return begun

    def _entering(self, rank: int, lane: int, index: int, now: float) -> _Running:
        """A step with one more rank in it."""
        whole, events = self._all.lengths[index][rank].all, self._all
        events.starts[rank][index] = now
        if not lane or len(self._entered) == 1:
            return _Running(index, whole, now, ranks=[rank])
        parties = events.ranks.parties(index)
        key = (index, parties[rank])
        step = self._gathering.get(key)
        if step is None:
            step = self._gathering[key] = _Running(index, whole, now, missing=parties.count(parties[rank]))
        step.missing -= 1
        step.ranks.append(rank)
        if not step.missing:
            step.since = now
            for other in step.ranks:
                events.waited[other] += now - events.starts[other][index]
                events.starts[other][index] = now
            del self._gathering[key]
        return step

    def _set_speeds(self, rank: int, now: float) -> set[int]:
        """The speeds of what a rank runs at once; the ranks on which something ends at another time by that."""
        running = self._running[rank]
        under_way = [(lane, step) for lane, step in running.items() if not step.missing]
        computing = running.get(0)
        if computing is not None and len(under_way) == 1:
            computing.at(now, rank, 1.0)
            return set()
        lengths, block = self._all.lengths, self._all.block
        active: list[Kernel] = []
        lasting: list[float] = []
        sending: list[_Running] = []
        for lane, step in under_way:
            kernel = block.steps[step.index]
            if lane and step.left > 0:
                assert isinstance(kernel, Kernel)
                active.append(kernel)
                lasting.append(lengths[step.index][rank].all)
                sending.append(step)
        estimate = self._all.estimates[computing.index] if computing is not None else None
        speed, shares = self._all.rates.of(estimate, active, lasting)
        if computing is not None:
            # The gap behind a kernel is no work: it is not slowed, and thins the speed of kernel and gap together.
            length = lengths[computing.index][rank]
            slowed = length.all + length.last / speed - length.last
            computing.at(now, rank, length.all / slowed if slowed else 1.0)
        others: set[int] = set()
        for step, share in zip(sending, shares, strict=True):
            if step.at(now, rank, share):
                others.update(step.ranks)
        return others
