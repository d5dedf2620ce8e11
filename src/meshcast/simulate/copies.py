"""Copies that run beside compute, on what compute leaves of the memory's time.

A compiler starts such a copy at its place in the program and waits for it at another (a TPU fetches the next kernel's
operands into its vector memory). Compute comes first: while a kernel of length `t` needs the memory for `m` seconds, the
oldest copies advance by `t - m`; while compute waits, they advance at full rate. Whatever the order, memory is never
used for more time than passes, and never idle while a copy is waited for.

A copy for the next step's beginning (a cross-program prefetch) comes after all others and is waited for at the end: in a
run of many steps the one before has made it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Pending:
    index: int
    left: float  # seconds of the memory's time
    begun: bool = False


class Copies:
    """The queue of copies of one block; writes when each begins and ends into lists that it shares with its owner."""

    def __init__(self, starts: list[float], ends: list[float]) -> None:
        self._starts = starts
        self._ends = ends
        self._queue: deque[_Pending] = deque()
        self._last: list[_Pending] = []  # for the next step
        self._waiting: set[int] = set()
        self._before = 0.0  # when the copy engine was last busy
        self.unused = 0.0  # seconds of the memory's time that nobody took

    def issue(self, index: int, seconds: float, *, at: float, next_step: bool) -> None:
        """A copy is started; one for the next step was made by the one before, and nobody here waits for it."""
        self._starts[index] = self._ends[index] = at
        if next_step:
            self._last.append(_Pending(index, seconds))
        elif seconds:
            self._queue.append(_Pending(index, seconds))
            self._waiting.add(index)

    def run_beside(self, start: float, end: float, *, free: float) -> None:
        """Time passes in which the memory is free for so long; the oldest copies take it."""
        if end <= start:
            return
        used = 0.0
        while self._queue and used < free:
            copy = self._queue[0]
            begun = start + (end - start) * used / free
            self._begin(copy, begun)
            taken = min(copy.left, free - used)
            copy.left -= taken
            used += taken
            if copy.left <= 0:
                self._finish(self._queue.popleft(), start + (end - start) * used / free)
        self.unused += free - used

    def waited_for(self, steps: Sequence[int], now: float) -> float:
        """When compute, which has come to `now`, can go on with what waits for some steps."""
        while self._waiting and not self._waiting.isdisjoint(steps):
            copy = self._queue.popleft()
            self._begin(copy, now)
            now += copy.left
            self._finish(copy, now)
        return now

    def finished(self, now: float) -> float:
        """When everything is copied, at the block's end; what is for the next step takes the time that nobody took."""
        while self._queue:
            now = self.waited_for((self._queue[0].index,), now)
        for copy in self._last:
            taken = min(copy.left, self.unused)
            self.unused -= taken
            self._begin(copy, now)
            now += copy.left - taken
            self._finish(copy, now)
        return now

    def _begin(self, copy: _Pending, at: float) -> None:
        if not copy.begun:
            copy.begun = True
            self._starts[copy.index] = max(self._starts[copy.index], self._before, at)

    def _finish(self, copy: _Pending, at: float) -> None:
        self._ends[copy.index] = self._before = max(at, self._starts[copy.index])
        self._waiting.discard(copy.index)
