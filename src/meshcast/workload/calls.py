"""Calls: inlined as compilers do, until a program would grow far beyond its text.

Twenty functions that each call the one before twice are a million ops. Once calls have made as many ops as
`nesting.room_to_grow` allows, a function that has been inlined before is read into a block of its own, once, and counted as
often as it is called: cost(f) * calls(f), calls(f) = sum over callers g of calls(g) * (calls of f in g).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from meshcast.base import UnsupportedError, recursion, room_to_grow
from meshcast.workload.graph import Op

_MAIN = ""
MOST_TIMES = 1 << 1000  # beyond it seconds and bytes are more than a floating point number holds


@dataclass(slots=True)
class Calls:
    """The state of a program's functions while it is read: which are inlined, which are counted, and how often they run."""

    where: str
    emitted: int = 0  # ops so far
    turns: int = 1  # of the loops around, within the function that is being read
    results: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of functions that are counted
    _sizes: dict[str, int] = field(default_factory=dict)  # ops of functions that have been inlined
    _repeated: int = 0  # ops that were inlined another time
    _active: list[str] = field(default_factory=list)
    _counting: list[str] = field(default_factory=lambda: [_MAIN])
    _times: dict[str, dict[str, int]] = field(
        default_factory=dict
    )  # caller -> callee -> times in one run of the caller

    def fits(self, symbol: str) -> bool:
        """Whether a function can be inlined at this place."""
        again = self._sizes.get(symbol)
        if again is None or again == 0:
            return True
        text = self.emitted - self._repeated
        return self.emitted + again <= room_to_grow(text)

    @contextmanager
    def inlined(self, symbol: str) -> Iterator[None]:
        """While a function's ops are read into those of its caller."""
        before, repeated = self.emitted, self._repeated
        with self._entered(symbol):
            yield
        size = self.emitted - before
        if symbol in self._sizes:
            self._repeated = repeated + size
        self._sizes[symbol] = size

    @contextmanager
    def counted(self, symbol: str) -> Iterator[None]:
        """While a function's ops are read into a block of its own."""
        around, self.turns = self.turns, 1
        self._counting.append(symbol)
        with self._entered(symbol):
            yield
        self._counting.pop()
        self.turns = around

    @contextmanager
    def looped(self, trips: int) -> Iterator[None]:
        """While a loop's body is read."""
        around = self.turns
        self.turns = self._countable(self.turns * trips)
        yield
        self.turns = around

    def call(self, symbol: str) -> None:
        """Counts a call of a function that has a block of its own."""
        times = self._times.setdefault(self._counting[-1], {})
        times[symbol] = times.get(symbol, 0) + self.turns

    def executions(self) -> dict[str, int]:
        """How often each counted function runs in a step."""
        found = dict.fromkeys(self.results, 0)
        found[_MAIN] = 1
        # A function has been read before any that calls it, so the callers of one are all done when its turn comes.
        for caller in (_MAIN, *reversed(self.results)):
            for callee, times in self._times.get(caller, {}).items():
                found[callee] = self._countable(found[callee] + found[caller] * times)
        del found[_MAIN]
        return found

    def _countable(self, times: int) -> int:
        if times > MOST_TIMES:
            raise UnsupportedError(
                f"loops and calls in each other let an op run 2^{times.bit_length() - 1:,} times, and 2^1,000 is the most",
                where=self.where,
                fix="lower the trip counts",
            )
        return times

    @contextmanager
    def _entered(self, symbol: str) -> Iterator[None]:
        if symbol in self._active:
            raise recursion([*self._active[self._active.index(symbol) :], symbol])
        self._active.append(symbol)
        yield
        self._active.pop()


def called(symbol: str) -> str:
    """The name of the op that stands for a counted function."""
    return f"call @{symbol}"


def with_executions(ops: list[Op], executions: Mapping[str, int], warnings: dict[str, None]) -> list[Op]:
    """The entry function's ops; those that stand for counted functions run as often as these do, and a warning says so."""
    if not executions:
        return ops
    warnings[
        f"calls make far more ops of the program than its text has: {len(executions)} functions are timed once each and "
        "counted as often as they run"
    ] = None
    times = {called(symbol): count for symbol, count in executions.items()}
    return [replace(op, trip_count=times.get(op.name, op.trip_count)) for op in ops]
