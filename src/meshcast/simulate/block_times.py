"""When the steps of one block run, in a given order: as a chain of maxima, or by events where speeds change.

Where nothing that is under way slows anything else, `start = max(end of the stream's previous step, ends of the steps it
waits for)` and `end = start + duration`: maxima and sums, hence monotone in durations. Where collectives share links, or
take cores and memory from compute, `simulate.events` goes from event to event.

Both place any number of ranks that are not alike, one of each class, side by side: a collective starts when the last of
those that meet in it arrives, `start(a) = max over b that meet a of arrival(b)`. One rank alone is the case of one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshcast.estimate import KernelEstimate
from meshcast.lower import Kernel
from meshcast.simulate.contention import SpeedShares
from meshcast.simulate.copies import Copies
from meshcast.simulate.events import Events
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length, OneRank, Ranks
from meshcast.simulate.one_class import Times, events_alone, stream_seconds, streams_alone
from meshcast.simulate.timeline import COPY, stream_of

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A block's steps in time on one rank.

    Attributes:
        length: The length of the block.
        order: In which its steps were issued.
        starts: When each begins, from when the first rank enters the block.
        ends: When each ends, with the gap behind it.
        early: The order in which its last kernel ends first, where that is another one.
    """

    length: Length
    order: Order
    starts: Sequence[float]
    ends: Sequence[float]
    early: Order

    @classmethod
    def of(cls, order: Order, times: Times) -> Placed:
        """What came of one order."""
        return cls(times[0], order, times[1], times[2], order)


def place(
    block: BlockPlan,
    lengths: Sequence[Length],
    estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares | None,
) -> Placed:
    """One rank in the fastest of a block's orders; with `rates`, slowed by what is under way at once."""
    rank = OneRank(lengths)
    if not block.concurrent:
        return _in_sequence(block, rank)[0]
    if rates is not None and not block.copies:
        # Of the orders only the length without contention is asked: the fastest runs with it.
        seconds = [length.all for length in lengths]
        order = min(block.orders, key=lambda order: stream_seconds(block, order, seconds))
        return Placed.of(order, events_alone(block, order, lengths, estimates, rates))
    runs = [
        _in_order(block, order, rank)[0] if block.copies else Placed.of(order, streams_alone(block, order, lengths))
        for order in block.orders
    ]
    fastest = min(runs, key=lambda run: run.length.all)
    earliest = min(runs, key=lambda run: run.length.last)
    return replace(fastest, length=replace(fastest.length, last=earliest.length.last), early=earliest.order)


def place_together(
    block: BlockPlan,
    chosen: Placed,
    ranks: Ranks,
    estimates: Sequence[KernelEstimate | None],
    rates: SpeedShares | None,
) -> list[Length]:
    """Ranks of several classes in the orders that were `chosen` for one rank alone: programs are ordered before they run."""
    if not block.concurrent:
        return [placed.length for placed in _in_sequence(block, ranks)]
    if rates is not None and not block.copies:
        return [placed.length for placed in _by_events(block, chosen.order, ranks, estimates, rates)]
    runs = [placed.length for placed in _in_order(block, chosen.order, ranks)]
    if chosen.early == chosen.order:
        return runs
    early = _in_order(block, chosen.early, ranks)
    return [replace(run, last=min(run.last, other.length.last)) for run, other in zip(runs, early, strict=True)]


def _in_sequence(block: BlockPlan, ranks: Ranks) -> list[Placed]:
    """The placement of a block with one stream."""
    order, now = block.orders[0], list(ranks.entered)
    if isinstance(ranks, OneRank):
        return [_alone(order, ranks)]
    starts: list[list[float]] = [[] for _ in now]
    ends: list[list[float]] = [[] for _ in now]
    last, free, waited = list(now), [0.0] * len(now), [0.0] * len(now)
    for index in order:
        for rank, length in enumerate(ranks.lengths(index, now)):
            start = now[rank]
            starts[rank].append(start)
            if length.all:
                last[rank] = start + length.last
            now[rank] = start + length.all
            ends[rank].append(now[rank])
            free[rank] += length.free
            waited[rank] += length.waited
    return [
        Placed(
            Length(now[rank] - entered, last[rank] - entered, free[rank], waited[rank]),
            order,
            starts[rank],
            ends[rank],
            order,
        )
        for rank, entered in enumerate(ranks.entered)
    ]


def _alone(order: Order, rank: OneRank) -> Placed:
    """The placement of one rank's block, whose steps are as long whenever they start."""
    starts: list[float] = []
    ends: list[float] = []
    entered = now = last = rank.entered[0]
    free = waited = 0.0
    for length in map(rank.all.__getitem__, order):
        starts.append(now)
        if length.all:
            last = now + length.last
        now += length.all
        ends.append(now)
        free += length.free
        waited += length.waited
    return Placed(Length(now - entered, last - entered, free, waited), order, starts, ends, order)


def _in_order(block: BlockPlan, order: Order, ranks: Ranks) -> list[Placed]:
    """The placement of a block with several streams that do not slow each other."""
    every = [_Streams(block, entered) for entered in ranks.entered]
    alone = len(every) == 1
    for index in order:
        step, lane = block.steps[index], block.lanes[index]
        if isinstance(step, Kernel) and stream_of(step) == COPY:
            for rank, length in zip(every, ranks.lengths(index, ()), strict=True):
                rank.copy(index, length.all, next_step="prefetch" in step.flags)
            continue
        starts = arrivals = [rank.arrival(index) for rank in every]
        if lane and not alone:
            starts = _met(ranks.parties(index), arrivals)
        for rank, length, arrival, start in zip(every, ranks.lengths(index, starts), arrivals, starts, strict=True):
            rank.run(index, length, arrival, start)
    return [rank.placed(order) for rank in every]


def _met(parties: Sequence[int], arrivals: Sequence[float]) -> list[float]:
    """When a collective starts: with the last of each party."""
    latest: dict[int, float] = {}
    for party, arrival in zip(parties, arrivals, strict=True):
        latest[party] = max(arrival, latest.get(party, arrival))
    return [latest[party] for party in parties]


class _Streams:
    """The streams of one rank in a block."""

    def __init__(self, block: BlockPlan, entered: float) -> None:
        self._block = block
        self._entered = entered
        self._starts, self._ends = [0.0] * len(block.steps), [0.0] * len(block.steps)
        self._busy_until = [entered] * (block.channels + 1)  # by channel; the first is not used
        self._compute = self._last = entered
        self._waited = 0.0
        self._copies = Copies(self._starts, self._ends)

    def copy(self, index: int, seconds: float, *, next_step: bool) -> None:
        """Starts a copy beside compute."""
        self._copies.issue(index, seconds, at=self._compute, next_step=next_step)

    def arrival(self, index: int) -> float:
        """When the rank could start a step."""
        before, lane = self._block.before[index], self._block.lanes[index]
        # Of a collective too: the core itself waits for a copy (XLA's `copy-done`) before it starts the collective, so
        # all compute that stands behind it in the compiler's order waits as well.
        self._compute = self._copies.waited_for(before, self._compute)
        ends = self._ends
        start = self._busy_until[lane] if lane else self._compute
        for earlier in before:
            if ends[earlier] > start:
                start = ends[earlier]
        return start if isinstance(self._block.steps[index], Kernel) else max(start, *self._busy_until)

    def run(self, index: int, length: Length, arrival: float, start: float) -> None:
        """Runs a step from `start` on."""
        end, lane = start + length.all, self._block.lanes[index]
        if lane:
            self._busy_until[lane] = end
            self._waited += start - arrival
        else:
            if not isinstance(self._block.steps[index], Kernel):
                self._busy_until = [end] * len(self._busy_until)
                self._waited += length.waited
            self._copies.run_beside(self._compute, start, free=start - self._compute)
            self._copies.run_beside(start, end, free=length.free)
            self._compute = end
        self._starts[index], self._ends[index] = start, end
        if length.all:
            self._last = max(self._last, start + length.last)

    def placed(self, order: Order) -> Placed:
        """All of it, once every step has run."""
        done = self._copies.finished(self._compute)
        if done > self._compute:
            self._compute, self._last = done, max(self._last, done)
        everything = max(self._compute, *self._busy_until) - self._entered
        length = Length(everything, self._last - self._entered, self._copies.unused, self._waited)
        return Placed(length, order, self._starts, self._ends, order)


def _by_events(
    block: BlockPlan, order: Order, ranks: Ranks, estimates: Sequence[KernelEstimate | None], rates: SpeedShares
) -> list[Placed]:
    events = Events(block, ranks, estimates, rates)
    return [
        Placed(length, order, starts, ends, order)
        for length, starts, ends in zip(events.run(order), events.starts, events.ends, strict=True)
    ]
