"""Lanes: workers with works of their own to do, families kept together, and works of those that die given out again.

What an engine of several processes has of its own is one call: some works done by a worker. Everything else is here: who gets
which works, how many are under way, and what happens when a worker dies. A work is tried `TRIES` times; then whoever does it is
taken to die of it, and it is answered by that.

Works of a family that take milliseconds each are handed over many at a time, in the order of their source: points that differ in
their hardware alone cost less than handing one over does, and neighbours in a space share what a worker keeps. A bundle takes
about `BUNDLE_S`, so that long works go one by one, and little is lost where a worker dies or somebody interrupts. Works
whose worker has died go one by one from there on: none is blamed for another.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from meshcast.explore.work import Answer, SearchWork, failed

TRIES = 3
AHEAD = 4  # bundles for each lane that are taken from the source before they are needed
BUNDLE_S = 0.3
MOST = 128  # works of a bundle


class DiedError(Exception):
    """A worker has died, and with it what it was doing."""


Do = Callable[[int, Sequence[SearchWork]], Sequence[Answer]]  # by the lane's number; raises DiedError


@dataclass(slots=True)
class _Item:
    number: int
    work: SearchWork
    tried: int = 1
    alone: bool = False


class Lanes:
    """Some workers, each behind a thread that waits for it."""

    def __init__(self, count: int, do: Do) -> None:
        self._count = count
        self._do = do
        self._home: dict[str, int] = {}  # who has a family's programs, or is to have them
        self._begun: dict[str, set[int]] = {}  # who has worked on a family
        self._given = [0] * count
        self._sizes: dict[str, int] = {}  # works of a family's next bundle
        self._most = 1  # the largest of them

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer, as they come; works are taken from their source as lanes become free."""
        source = iter(enumerate(works))
        waiting: list[deque[_Item]] = [deque() for _ in range(self._count)]
        done: queue.SimpleQueue[tuple[int, list[_Item], Sequence[Answer] | BaseException, float]] = queue.SimpleQueue()
        busy = [False] * self._count
        exhausted = False

        def run(lane: int, items: list[_Item]) -> None:
            started = time.perf_counter()
            try:
                found: Sequence[Answer] | BaseException = self._do(lane, [item.work for item in items])
            except BaseException as error:
                found = error
            done.put((lane, items, found, time.perf_counter() - started))

        while True:
            while not exhausted and sum(map(len, waiting)) < AHEAD * self._count * self._most:
                taken = next(source, None)
                if taken is None:
                    exhausted = True
                    break
                number, work = taken
                waiting[self._lane(work, waiting)].append(_Item(number, work))
            for lane in range(self._count):
                items = [] if busy[lane] else self._next(lane, waiting, exhausted=exhausted)
                if items:
                    busy[lane] = True
                    threading.Thread(target=run, args=(lane, items), daemon=True).start()
            if not any(busy):
                return
            lane, items, found, seconds = done.get()
            busy[lane] = False
            if isinstance(found, DiedError):
                yield from self._after_death(items, waiting[lane], found)
                continue
            if isinstance(found, BaseException):
                raise found
            self._note(items, seconds)
            for item, answer in zip(items, found, strict=True):
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

    def _note(self, items: list[_Item], seconds: float) -> None:
        """How many works of a family go together next, by what these took; at most four times as many as now."""
        family = items[0].work.family
        fitting = int(BUNDLE_S * len(items) / seconds) if seconds > 0 else MOST
        size = self._sizes[family] = max(1, min(MOST, fitting, 4 * len(items)))
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

    def _next(self, lane: int, waiting: list[deque[_Item]], *, exhausted: bool) -> list[_Item]:
        """A lane's next works: its own first, else the last ones of whoever has most; towards the end no lane takes all."""
        own = waiting[lane]
        fullest = own or max(waiting, key=len)
        if not fullest:
            return []
        place = 0 if own else self._to_take(lane, fullest)
        first = fullest[place]
        family = first.work.family
        size = 1 if first.alone or not family else self._sizes.get(family, 1)
        if exhausted:
            size = min(size, 1 + (len(fullest) - 1) // self._count)
        step = 1 if own else -1
        end = place + step
        while 0 <= end < len(fullest) and abs(end - place) < size and _goes_with(fullest[end], family):
            end += step
        places = range(place, end, step)
        items = [fullest[each] for each in sorted(places)]
        for each in sorted(places, reverse=True):
            del fullest[each]
        if not self._begun.get(family):
            self._home[family] = lane
        self._begun.setdefault(family, set()).add(lane)
        return items

    def _to_take(self, lane: int, queue: deque[_Item]) -> int:
        """The place of what a lane takes of somebody else's works.

        That is the last one of a family that it has worked on itself, or that nobody has begun, which is its own from there on:
        programs of the others would be made a second time. Where all are, it is the last one.
        """
        for place in reversed(range(len(queue))):
            begun = self._begun.get(queue[place].work.family, ())
            if not begun or lane in begun:
                return place
        return len(queue) - 1


def _goes_with(item: _Item, family: str) -> bool:
    """Whether a work may be handed over with others of a family."""
    return not item.alone and item.work.family == family
