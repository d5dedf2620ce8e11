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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from meshcast.estimate.energy import idle_watts
from meshcast.estimate.estimator import Array, Clocks
from meshcast.hardware import Device

# The lowest clock that is looked for, as a share of the full one; set by hand, with room below what was seen: products of
# 8192^2 without a pause settle an H200 at 0.76. Far below that voltage meets its floor, and the law of `E(s)` ends.
LOWEST = 0.4

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
    def slowdown(clocked: Number, share: float) -> Number:
        """How many times its time at the full clock a kernel takes: `c / s + 1 - c`."""
        return clocked / share + 1 - clocked

    def slowest(self, devices: int) -> float:
        """The clock of the slowest of so many equal devices under their caps, as a share of the one in the middle.

        Chips of one kind draw differently, so caps leave them different clocks, and whoever waits for all of them waits for
        the slowest: of n normally distributed ones it lies `sigma sqrt(2 ln n)` off, for large n.
        """
        return 1.0 if devices < 2 else max(LOWEST, 1.0 - self.variation * math.sqrt(2.0 * math.log(devices)))

    def joules(self, dynamic: Number, static: Number, time: Number, share: float) -> Number:
        """Joules above idle at a share of the full clock.

        Args:
            dynamic: Joules at the full clock that fall with it.
            static: Joules that do not.
            time: Seconds at that share.
            share: Of the full clock.
        """
        drawn, least = dynamic * share**self.frequency_power + static, self.least_watts * time
        joules: Number = max(drawn, least) if isinstance(time, float) else np.maximum(drawn, least)
        return joules


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


def settled_clock(draw: PowerDraw, counts: Array, device: Device, clocks: Clocks, rest: float = 0.0) -> float:
    """The clock, as a share of the full one, that a program of these kernels runs at: bisection down to `LOWEST`.

    `LOWEST` is also the answer where even that draws more than the cap: predicted power then lies above it.

    Args:
        draw: Its kernels.
        counts: How often each runs.
        device: Whose cap.
        clocks: `sustained`, or `burst` for a short run on a cool card.
        rest: Seconds of the program in which no kernel runs.
    """
    law = draw.law
    burst = clocks == "burst"
    limit = device.tdp_watts * (law.burst_limit if burst else 1.0) - idle_watts(device)
    window = law.burst_window if burst else 0.0

    def fits(share: float) -> bool:
        times = draw.times(share)
        seconds = float(counts @ times) + rest
        return float(counts @ law.joules(draw.dynamic, draw.static, times, share)) <= limit * max(seconds, window)

    if fits(1.0):
        return 1.0
    low, high = LOWEST, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
