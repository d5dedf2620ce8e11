"""The clock that the power cap leaves a program.

A limiter averages power over tens of milliseconds, so the cap binds a program, not its kernels: in a step that is half
products and half streams, products run at the full clock and draw more than the cap while they do. With `s` the clock's
share of the full one, a kernel takes `t(s) = t (c / s + 1 - c)`, `c` being the share of its time that follows the clock, and
draws `E(s) = max(dynamic s^k + static, least t(s))` above idle: voltage falls with the clock, so energy per operation does.
The limiter settles at the largest `s <= 1` with

    idle + sum E(s) / max(sum t(s) + rest, window) <= limit,

the limit being TDP for sustained runs and somewhat above it for short ones, whose power is averaged over a window that
holds the launch gaps around short kernels too.

Both energies are those of values whose bits look random. A gate draws power when it switches: equal numbers throughout leave
a share of it (`ValueShares`), half zeros more of it; signs and exponents of normally distributed numbers switch more than those
of the uniform ones that energies were measured with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from meshcast.base import by_point, raw
from meshcast.estimate.energy import idle_watts
from meshcast.estimate.estimator import Array, Clocks
from meshcast.hardware import Device

# The lowest clock that is looked for, as a share of the full one; set by hand, with room below what was seen: products of
# 8192^2 without a pause settle an H200 at 0.76. Far below that voltage meets its floor, and the law of `E(s)` ends.
LOWEST_CLOCK = 0.4

# Seconds of back-to-back runs in which what the cap takes comes down on a program by 1 - 1/e. Twelve steps and prompts that their
# cap slows were averaged over 0.6 s on an H200, and lay halfway from their busy time in a short profile to what they settle at
# (0.08 to 0.68 of the way, 0.49 in the middle; data/measured/h200-later-models); averages over 0.1 s are near the busy time.
SETTLING_S = 0.9

Number = TypeVar("Number", float, Array)
# What a program's arrays hold: numbers whose bits look random, normally distributed ones (weights and activations in training),
# random ones with zeros for half of them (behind a ReLU), or one number throughout.
Values = Literal["random", "normal", "half-zeros", "zeros"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueShares:
    """The shares of what random numbers draw that is left with other values."""

    dynamic: float = 1.0
    static: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """How a device's power follows its clock."""

    frequency_power: float  # k above
    burst_limit: float  # power that short runs draw before the limiter settles, as a share of TDP
    burst_window: float  # seconds over which a short run's power is averaged at least
    least_watts: float  # of a running kernel above idle
    values: Mapping[Values, ValueShares] = field(default_factory=dict)  # random numbers need no entry
    variation: float = 0.0  # standard deviation of the clock that equal devices settle at under their caps, as a share

    @staticmethod
    def slowdown(clocked: Number, share: float | Array) -> Number:
        """How many times its time at the full clock a kernel takes: `c / s + 1 - c`."""
        found: Any = clocked / share + 1 - clocked
        slower: Number = found
        return slower

    def slowest(self, devices: int) -> float:
        """The clock of the slowest of so many equal devices under their caps, as a share of the one in the middle.

        Chips of one kind draw differently, so caps leave them different clocks, and whoever waits for all of them waits for
        the slowest: of n normally distributed ones it lies `sigma sqrt(2 ln n)` off, for large n.
        """
        return 1.0 if devices < 2 else max(LOWEST_CLOCK, 1.0 - self.variation * math.sqrt(2.0 * math.log(devices)))

    def joules(self, dynamic: Number, static: Number, time: Number, share: float) -> Number:
        """Joules above idle at a share of the full clock.

        Args:
            dynamic: Joules at the full clock that fall with it.
            static: Joules that do not.
            time: Seconds at that share.
            share: Of the full clock.
        """
        return self.joules_of(dynamic, static, time, share**self.frequency_power)

    def joules_of(self, dynamic: Number, static: Number, time: Number, powered: float | Array) -> Number:
        """The same by `s^k`, of one clock or of several."""
        drawn, least = dynamic * powered + static, raw(self.least_watts) * time
        joules: Any = max(drawn, least) if isinstance(time, float) else np.maximum(drawn, least)
        found: Number = joules
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDraw:
    """Kernels at the full clock, one entry each: seconds, the share of them that follows the clock, joules above idle."""

    time: Array
    clocked: Array
    dynamic: Array
    static: Array
    law: PowerLaw

    def one(self, index: int) -> PowerDraw:
        """A single kernel."""
        here = slice(index, index + 1)
        columns = (self.time[here], self.clocked[here], self.dynamic[here], self.static[here])
        return PowerDraw(time=columns[0], clocked=columns[1], dynamic=columns[2], static=columns[3], law=self.law)

    def times(self, share: float) -> Array:
        """Seconds at a share of the full clock."""
        return self.time * self.law.slowdown(self.clocked, share)

    def joules(self, share: float) -> Array:
        """Joules above idle at a share of the full clock."""
        return self.law.joules(self.dynamic, self.static, self.times(share), share)

    def seconds(self, counts: Array, share: float | None = None) -> float:
        """Seconds of all kernels that run so often, one after the other, at the full clock or a share of it."""
        if share is None:
            return float(counts @ self.time)
        return by_point(lambda each: float(counts @ self.times(each)), share)  # type: ignore[no-any-return]


def settled_clock(draw: PowerDraw, counts: Array, device: Device, clocks: Clocks, rest: float = 0.0) -> float:
    """The clock, as a share of the full one, that a program of these kernels runs at: bisection down to `LOWEST_CLOCK`.

    `LOWEST_CLOCK` is also the answer where even that draws more than the cap: predicted power then lies above it.

    Args:
        draw: Its kernels.
        counts: How often each runs.
        device: Whose cap.
        clocks: `sustained`, or `burst` for a short run on a cool card.
        rest: Seconds of the program in which no kernel runs; the answer is a column where these are.
    """
    return by_point(  # type: ignore[no-any-return]
        lambda seconds: _settled_clock(draw, counts, device, clocks, seconds), rest
    )


def settled_part(seconds: float) -> float:
    """How far a program that ran so long has come from its burst to the clock that its cap leaves: `1 - exp(-t / tau)`."""
    return 1.0 - math.exp(-seconds / SETTLING_S)


def power_limit(law: PowerLaw, device: Device, clocks: Clocks) -> tuple[float, float]:
    """Watts above idle that a device may draw, and the seconds over which they are averaged at least."""
    burst = clocks == "burst"
    limit = device.tdp_watts * (law.burst_limit if burst else 1.0) - idle_watts(device)
    return limit, law.burst_window if burst else 0.0


def _settled_clock(draw: PowerDraw, counts: Array, device: Device, clocks: Clocks, rest: float) -> float:
    law = draw.law
    limit, window = power_limit(law, device, clocks)

    def drawn(share: float) -> tuple[float, float]:
        """Joules at a clock, and how many may be drawn."""
        times = draw.times(share)
        seconds = float(counts @ times) + rest
        return float(counts @ law.joules(draw.dynamic, draw.static, times, share)), limit * max(seconds, window)

    return largest_fitting(drawn, LOWEST_CLOCK, 1.0)


HALVINGS = 20
NEAR = 0.5**HALVINGS / 4  # of a share: less than bisection tells apart


def largest_fitting(drawn: Callable[[float], tuple[float, float]], lowest: float, highest: float) -> float:
    """Where bisection between two clocks ends whose joules are at most those that may be drawn; the highest where they fit."""
    looks = fitting_looks(lowest, highest)
    share = next(looks)
    while True:
        try:
            share = looks.send(drawn(share))
        except StopIteration as ended:
            found: float = ended.value
            return found


def fitting_looks(lowest: float, highest: float) -> Generator[float, tuple[float, float], float]:
    """The clocks that `largest_fitting` looks at, one after the other, each answered by joules and those that may be drawn.

    Both grow apart with the clock, so whatever lies below a clock that fits does, too: what a halving would find is known
    without a look where it lies outside of what was looked at. So the crossing is looked for first, along secants, and bisection
    looks at what lies next to it: a third of its 21 looks.
    """
    fits, too_much = -math.inf, math.inf  # the highest clock that is known to fit, the lowest that is known not to

    def excess(share: float, answer: tuple[float, float]) -> float:
        nonlocal fits, too_much
        joules, allowed = answer
        if joules <= allowed:
            fits = max(fits, share)
        else:
            too_much = min(too_much, share)
        return joules - allowed

    above = excess(highest, (yield highest))
    if fits == highest:
        return highest
    below = excess(lowest, (yield lowest))
    before, last = (lowest, below), (highest, above)
    for _ in range(6 if below < 0 < above else 0):
        slope = (last[1] - before[1]) / (last[0] - before[0])
        guess = last[0] - last[1] / slope if slope > 0 else math.nan
        if not fits < guess < too_much:
            break
        before, last = last, (guess, excess(guess, (yield guess)))
        if abs(last[0] - before[0]) < NEAR:
            break
        if last[1] == before[1]:
            break
    for beside in (last[0] - NEAR, last[0] + NEAR):
        if fits < beside < too_much:
            excess(beside, (yield beside))
    low, high = lowest, highest
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if fits < middle < too_much:
            excess(middle, (yield middle))
        low, high = (middle, high) if middle <= fits else (low, middle)
    return low
