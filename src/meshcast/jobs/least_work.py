"""`LeastWork`: seconds and joules that kernels take at least, by the clock; `LeastStep`: the step that a cap leaves of them.

With `s` the clock's share of the full one, kernels on one stream take `t(s) = a + b / s` seconds and draw `E(s) = A + B s^k`
joules above idle at least (`estimate/power.py` has the law; the least power of a running kernel only adds to it). Exchanges
between them that take `X` seconds, one after the other, are hidden at the most by those kernels that need none of them and
that none of them needs, `P(s)` seconds; and whatever else happens, what one channel has to carry takes `C` seconds:

    T(s) = max(C, t(s) + sum over groups of max(0, X - P(s)))

A kernel that is longer than claimed, or of which nothing is claimed, makes `t` longer by as much as it may hide more: `T` stays
below the step. It falls with `s`, as `P` is part of `t`. The clock of a step is the largest at which its joules keep to the limit
`W` above idle over the step; of several devices all wait for the slowest, a share `q` of it. So, whatever else a step does,

    step >= min over s of max(sum T(q s), sum E(s) / W)

of which the first falls with `s` and the second grows: the least is where they meet, or at the full clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshcast.estimate import LOWEST_CLOCK

HALVINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """Exchanges one after the other, and the kernels that may run beside them.

    Attributes:
        seconds: Of the exchanges.
        fixed_s: Seconds of the kernels beside them that do not follow the clock.
        clocked_s: Seconds at the full clock of those that do.
    """

    seconds: float
    fixed_s: float = 0.0
    clocked_s: float = 0.0

    def exposed(self, share: float) -> float:
        """Seconds that nothing hides."""
        return max(0.0, self.seconds - self.fixed_s - self.clocked_s / share)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimit:
    """What a device may draw.

    Attributes:
        watts: Above idle.
        window_s: Seconds over which they are averaged at least.
        power: k above.
        variation: Standard deviation of the clocks of equal devices.
    """

    watts: float
    window_s: float
    power: float
    variation: float

    def slowest(self, devices: int) -> float:
        """The clock of the slowest of so many equal devices, as `PowerLaw.slowest` has it."""
        return 1.0 if devices < 2 else max(LOWEST_CLOCK, 1.0 - self.variation * math.sqrt(2.0 * math.log(devices)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWork:
    """What some kernels take at least.

    Attributes:
        fixed_s: Seconds that do not follow the clock.
        clocked_s: Seconds at the full clock of those that do.
        fixed_j: Joules above idle that do not follow it.
        clocked_j: Joules at the full clock of those that do.
        exchanges: What is exchanged between them.
        carried_s: Seconds of a channel beside them.
    """

    fixed_s: float = 0.0
    clocked_s: float = 0.0
    fixed_j: float = 0.0
    clocked_j: float = 0.0
    exchanges: tuple[Exchanged, ...] = ()
    carried_s: float = 0.0

    @property
    def exchanged_s(self) -> float:
        """Seconds of all exchanges."""
        return sum(each.seconds for each in self.exchanges)

    @property
    def longest_s(self) -> float:
        """Seconds at the lowest clock."""
        return self.seconds(LOWEST_CLOCK)

    @property
    def kernels(self) -> LeastWork:
        """The kernels alone."""
        return replace(self, exchanges=(), carried_s=0.0)

    def times(self, count: float) -> LeastWork:
        """Kernels so many times, one after the other; nothing is claimed of what is exchanged between them."""
        return LeastWork(
            fixed_s=count * self.fixed_s,
            clocked_s=count * self.clocked_s,
            fixed_j=count * self.fixed_j,
            clocked_j=count * self.clocked_j,
        )

    def then(self, other: LeastWork) -> LeastWork:
        """Both, one after the other."""
        return LeastWork(
            fixed_s=self.fixed_s + other.fixed_s,
            clocked_s=self.clocked_s + other.clocked_s,
            fixed_j=self.fixed_j + other.fixed_j,
            clocked_j=self.clocked_j + other.clocked_j,
            exchanges=(*self.exchanges, *other.exchanges),
            carried_s=self.carried_s + other.carried_s,
        )

    def beside(self, seconds: float) -> LeastWork:
        """The same beside a channel that carries for so long."""
        return replace(self, carried_s=max(self.carried_s, seconds))

    def seconds(self, share: float = 1.0) -> float:
        """Seconds at a share of the full clock: `T` above."""
        working = self.fixed_s + self.clocked_s / share + sum(each.exposed(share) for each in self.exchanges)
        return max(self.carried_s, working)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LeastWork:
        """The work of an object, as `asdict` makes it."""
        return cls(**{**data, "exchanges": tuple(Exchanged(**each) for each in data["exchanges"])})


def one_after_the_other(works: Iterable[LeastWork]) -> LeastWork:
    """All of them."""
    found = LeastWork()
    for each in works:
        found = found.then(each)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastStep:
    """Works one after the other, each so many times.

    Attributes:
        works: The works, with how often each is done.
    """

    works: tuple[tuple[float, LeastWork], ...]

    def seconds(self, share: float = 1.0) -> float:
        """Seconds at a share of the full clock."""
        return sum(count * work.seconds(share) for count, work in self.works)

    def under(self, limit: PowerLimit | None, devices: int) -> float:
        """Seconds at the clock that a power cap leaves so many devices that wait for each other.

        Args:
            limit: What each may draw; None where nobody knows.
            devices: How many.
        """
        whole = self.seconds()
        if limit is None:
            return whole
        slowest = limit.slowest(devices)
        fixed = sum(count * work.fixed_j for count, work in self.works)
        clocked = sum(count * work.clocked_j for count, work in self.works)

        def powered(share: float) -> float:
            """Seconds over which the joules keep to the limit."""
            seconds = (fixed + clocked * share**limit.power) / limit.watts if limit.watts > 0 else math.inf
            return seconds if seconds > limit.window_s else 0.0

        if powered(1.0) <= whole:
            return whole
        low, high = LOWEST_CLOCK, 1.0
        if powered(low) >= self.seconds(slowest * low):
            return self.seconds(slowest * low)  # the clock falls no further
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if powered(middle) <= self.seconds(slowest * middle):
                low = middle
            else:
                high = middle
        # Below `low` seconds are more, above `high` joules; between them both are at least these. A step that keeps the full
        # clock does not wait for a slowest device.
        return min(max(self.seconds(slowest * high), powered(low)), max(whole, powered(1.0)))
