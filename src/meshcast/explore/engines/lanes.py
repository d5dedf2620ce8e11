"""Lanes: workers with works of their own to do, families kept together, and works of those that die given out again.

What an engine of several processes has of its own is one call: a work done by a worker. Everything else is here: who gets which
work, how many are under way, and what happens when a worker dies. A work is tried `TRIES` times; then whoever does it is taken to
die of it, and it is answered by that.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from meshcast.explore.work import Answer, SearchWork, failed

TRIES = 3
AHEAD = 4  # works for each lane that are taken from the source before they are needed


class DiedError(Exception):
    """A worker has died, and with it what it was doing."""


Do = Callable[[int, SearchWork], Answer]  # by the lane's number; raises DiedError


class Lanes:
    """Some workers, each behind a thread that waits for it."""

    def __init__(self, count: int, do: Do) -> None:
        self._count = count
        self._do = do
        self._home: dict[str, int] = {}  # who has a family's programs
        self._given = [0] * count

    def answers(self, works: Iterable[SearchWork]) -> Iterator[tuple[int, Answer]]:
        """Each work's number and answer, as they come; works are taken from their source as lanes become free."""
        source = iter(enumerate(works))
        waiting: list[deque[tuple[int, SearchWork, int]]] = [deque() for _ in range(self._count)]
        done: queue.SimpleQueue[tuple[int, tuple[int, SearchWork, int], Answer | DiedError | BaseException]] = (
            queue.SimpleQueue()
        )
        busy = [False] * self._count
        exhausted = False

        def run(lane: int, item: tuple[int, SearchWork, int]) -> None:
            try:
                found: Answer | BaseException = self._do(lane, item[1])
            except BaseException as error:
                found = error
            done.put((lane, item, found))

        while True:
            while not exhausted and sum(map(len, waiting)) < AHEAD * self._count:
                taken = next(source, None)
                if taken is None:
                    exhausted = True
                    break
                number, work = taken
                waiting[self._lane(work, waiting)].append((number, work, 1))
            for lane in range(self._count):
                item = None if busy[lane] else self._next(lane, waiting)
                if item is not None:
                    busy[lane] = True
                    threading.Thread(target=run, args=(lane, item), daemon=True).start()
            if not any(busy):
                return
            lane, (number, work, tried), found = done.get()
            busy[lane] = False
            if isinstance(found, DiedError):
                if tried < TRIES:
                    waiting[lane].appendleft((number, work, tried + 1))
                    continue
                found = failed(work, f"whoever works on it dies, {tried} times: {found}")
            elif isinstance(found, BaseException):
                raise found
            yield number, found

    def _lane(self, work: SearchWork, waiting: list[deque[tuple[int, SearchWork, int]]]) -> int:
        """Who has the work's family, or else has been given least."""
        home = self._home.get(work.family) if work.family else None
        if home is None:
            home = min(range(self._count), key=lambda lane: (len(waiting[lane]), self._given[lane], lane))
            if work.family:
                self._home[work.family] = home
        self._given[home] += 1
        return home

    def _next(self, lane: int, waiting: list[deque[tuple[int, SearchWork, int]]]) -> tuple[int, SearchWork, int] | None:
        """A lane's next work: its own first, else the last one of whoever has most."""
        if waiting[lane]:
            return waiting[lane].popleft()
        fullest = max(range(self._count), key=lambda other: len(waiting[other]))
        return waiting[fullest].pop() if waiting[fullest] else None
