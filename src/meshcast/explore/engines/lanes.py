"""Lanes: workers with works of their own to do, families kept together, and works of those that die given out again.

What an engine of several processes has of its own is one call: some works done by a worker. Everything else is here: who gets
which works, how many are under way, and what happens when a worker dies. A work is tried `TRIES` times; then whoever does it is
taken to die of it, and it is answered by that.

Works of a family that take milliseconds each are handed over many at a time, in the order of their source: points that differ in
their hardware alone cost less than handing one over does, and neighbours in a space share what a worker keeps. A bundle takes
about `BUNDLE_S`, or has `LEAST` of quick ones, so that long works go one by one, and little is lost where a worker dies or
somebody interrupts. Towards the end they are shared out among all, but not in bundles so small that each costs as much as
a whole one. Works whose worker has died go one by one from there on: none is blamed for another.

A worker without works takes some of another's, of a family that is new to both first. One that the other has begun costs the
worker what its first work took: its programs are made again, which may take as long as fifty works whose programs are there.
So it is taken only where the other is busy for longer than that with what it does and what waits for it, and what waits of the
family takes at least half as long; or, as long as nobody knows what is still to come, once the worker has waited for as long as
it costs.
"""

from __future__ import annotations

import math
import queue
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from meshcast.explore.work import Answer, SearchWork, failed

TRIES = 3
AHEAD = 4  # bundles for each lane that are taken from the source before they are needed
BUNDLE_S = 2.0
QUICK_S = 0.4  # of a work that is handed over with at least so many others, however busy the machine is:
LEAST = 256  # such points differ in their hardware alone, and are worked out together (`explore.together`)
MOST = 512  # works of a bundle
GROWTH = 128  # times as many as before: points that are worked out together cost little more than one of them does
# Works of a bundle that are shared out no further when nothing comes behind them, for the same reason, and their seconds.
AT_THE_END, AT_THE_END_S = 32, 0.5
LATEST = 64  # works whose time says what others will take


class DiedError(Exception):
    """A worker has died, and with it what it was doing."""


Do = Callable[[int, Sequence[SearchWork]], Sequence[Answer]]  # by the lane's number; raises DiedError


@dataclass(slots=True)
class _Item:
    number: int
    work: SearchWork
    tried: int = 1
    alone: bool = False


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Works of one family that a worker does together, and whether they are the first of it that it does."""

    items: list[_Item]
    family: str
    begins: bool


class Lanes:
    """Some workers, each behind a thread that waits for it."""

    def __init__(self, count: int, do: Do) -> None:
        self._count = count
        self._do = do
        self._home: dict[str, int] = {}  # who has a family's programs, or is to have them
        self._begun: dict[str, set[int]] = {}  # who has worked on a family
        self._given = [0] * count
        self._first: dict[str, float] = {}  # seconds of a family's first works with somebody
        self._latest: deque[float] = deque(maxlen=LATEST)  # seconds of works behind the first of their families
        self._until = [0.0] * count  # when each should be done with what it does
        self._since = [0.0] * count  # when each had nothing to do last
        self._sizes: dict[str, int] = {}  # works of a family's next bundle
        self._most = 1  # the largest of these sizes so far
        self._paces: dict[str, float] = {}  # seconds of one of a family's latest works
        self._under_way: Counter[str] = Counter()  # works of a family that somebody does

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer, as they come; works are taken from their source as lanes become free."""
        source = iter(enumerate(works))
        waiting: list[deque[_Item]] = [deque() for _ in range(self._count)]
        done: queue.SimpleQueue[tuple[int, _Bundle, Sequence[Answer] | BaseException, float]] = queue.SimpleQueue()
        busy = [False] * self._count
        exhausted = False
        self._since = [time.perf_counter()] * self._count

        def run(lane: int, bundle: _Bundle) -> None:
            started = time.perf_counter()
            try:
                found: Sequence[Answer] | BaseException = self._do(lane, [item.work for item in bundle.items])
            except BaseException as error:
                found = error
            done.put((lane, bundle, found, time.perf_counter() - started))

        while True:
            while not exhausted and sum(map(len, waiting)) < AHEAD * self._count * self._most:
                taken = next(source, None)
                if taken is None:
                    exhausted = True
                    break
                number, work = taken
                waiting[self._lane(work, waiting)].append(_Item(number, work))
            for lane in range(self._count):
                bundle = None if busy[lane] else self._next(lane, waiting, exhausted=exhausted)
                if bundle is not None:
                    busy[lane] = True
                    self._until[lane] = time.perf_counter() + self._expected(bundle)
                    threading.Thread(target=run, args=(lane, bundle), daemon=True).start()
            if not any(busy):
                return
            lane, bundle, found, seconds = done.get()
            busy[lane] = False
            self._under_way[bundle.family] -= len(bundle.items)
            self._since[lane] = time.perf_counter()
            if isinstance(found, DiedError):
                yield from self._after_death(bundle.items, waiting[lane], found)
                continue
            if isinstance(found, BaseException):
                raise found
            self._note(bundle, seconds)
            for item, answer in zip(bundle.items, found, strict=True):
                yield item.number, answer

    @staticmethod
    def _after_death(items: list[_Item], waiting: deque[_Item], why: DiedError) -> Iterator[tuple[int, Answer]]:
        """Gives works out again whose worker has died, each by itself; one that was by itself `TRIES` times is answered."""
        together = len(items) > 1
        for item in reversed(items):
            if not together and item.tried >= TRIES:
                yield item.number, failed(item.work, f"whoever works on it dies, {item.tried} times: {why}")
                continue
            item.tried += not together
            item.alone = True
            waiting.appendleft(item)

    def _expected(self, bundle: _Bundle) -> float:
        """Seconds that works should take, by what others took; 0 where that is not known."""
        first = self._first.get(bundle.family, 0.0) if bundle.begins else 0.0
        return first + self._usual_s * (len(bundle.items) - bundle.begins)

    @property
    def _usual_s(self) -> float:
        """Seconds of a work whose family was begun: the median, as plans of a family may still have programs of their own."""
        return _median(self._latest)

    def _note(self, bundle: _Bundle, seconds: float) -> None:
        """How many works of a family go together next, by what these took; at most `GROWTH` times as many as now."""
        items, family = bundle.items, bundle.family
        if bundle.begins:
            self._first[family] = seconds
            self._paces.setdefault(family, seconds / len(items))  # at the most: programs were made, too
        else:
            self._latest.append(seconds / len(items))
            self._paces[family] = seconds / len(items)
        fitting = int(BUNDLE_S * len(items) / seconds) if seconds > 0 else MOST
        if seconds < QUICK_S * len(items):
            fitting = max(fitting, LEAST)
        size = self._sizes[family] = max(1, min(MOST, fitting, GROWTH * len(items)))
        self._most = max(self._most, size)

    def _lane(self, work: SearchWork, waiting: list[deque[_Item]]) -> int:
        """Who has the work's family, or else has been given least."""
        home = self._home.get(work.family) if work.family else None
        if home is None:
            home = min(range(self._count), key=lambda lane: (len(waiting[lane]), self._given[lane], lane))
            if work.family:
                self._home[work.family] = home
        self._given[home] += 1
        return home

    def _next(self, lane: int, waiting: list[deque[_Item]], *, exhausted: bool) -> _Bundle | None:
        """A lane's next works: its own first, else the last ones of whoever has most; towards the end no lane takes all."""
        own = waiting[lane]
        owner = lane if own else max(range(self._count), key=lambda each: len(waiting[each]))
        fullest = waiting[owner]
        if not fullest:
            return None
        place = 0 if own else self._to_take(lane, owner, fullest, exhausted=exhausted)
        if place is None:
            return None
        first = fullest[place]
        family = first.work.family
        size = 1 if first.alone or not family else self._sizes.get(family, 1)
        if exhausted:
            size = min(size, max(self._undivided(family), self._share(family, len(fullest))))
        step = 1 if own else -1
        end = place + step
        while 0 <= end < len(fullest) and abs(end - place) < size and _goes_with(fullest[end], family):
            end += step
        places = range(place, end, step)
        items = [fullest[each] for each in sorted(places)]
        for each in sorted(places, reverse=True):
            del fullest[each]
        begun = self._begun.setdefault(family, set())
        if not begun:
            self._home[family] = lane
        begins = bool(family) and lane not in begun
        begun.add(lane)
        self._under_way[family] += len(items)
        return _Bundle(items, family, begins)

    def _share(self, family: str, left: int) -> int:
        """A lane's share of the last works of a family.

        Where what is left takes no longer than a bundle, works that other lanes have in hand count as theirs, so that each lane
        gets one more bundle: halves of what is left, and halves of those, would each pay for a bundle of their own.
        """
        quick = self._paces.get(family, math.inf) * left <= BUNDLE_S
        return math.ceil((left + self._under_way[family] * quick) / self._count)

    def _undivided(self, family: str) -> int:
        """How many works of a family are better done by one worker than by several."""
        seconds = self._paces.get(family)
        return min(AT_THE_END, int(AT_THE_END_S / seconds)) if seconds else 1

    def _to_take(self, lane: int, owner: int, queue: deque[_Item], *, exhausted: bool) -> int | None:
        """The place of what a lane takes of the owner's works; None where it had better wait for works of its own.

        That is the last one of a family that it has worked on itself, or that nobody has begun, which is its own from there on:
        programs of the others would be made a second time. Where all are, it is the last one, if its programs are made before the
        owner would be done with all and it spares him enough, or it has waited for as long while more may come.
        """
        for place in reversed(range(len(queue))):
            begun = self._begun.get(queue[place].work.family, ())
            if not begun or lane in begun:
                return place
        family, now, usual = queue[-1].work.family, time.perf_counter(), self._usual_s
        again = self._first.get(family, _median(self._first.values()))  # what others took where its first is under way
        left = max(0.0, self._until[owner] - now) + usual * len(queue)
        spared = usual * sum(item.work.family == family for item in queue)
        waited = 0.0 if exhausted else now - self._since[lane]
        return len(queue) - 1 if min(left, 2 * spared) >= again or waited >= again else None


def _median(seconds: Collection[float]) -> float:
    """The median; 0 of none."""
    return statistics.median(seconds) if seconds else 0.0


def _goes_with(item: _Item, family: str) -> bool:
    """Whether a work may be handed over with others of a family."""
    return not item.alone and item.work.family == family
