"""Power and clocks: what a kernel draws, the clock that the power cap allows, and the time at that clock.

Energy above idle at clock `f` (full clock `F`): `E(f) = (matrix + vector) * (f / F)^k + bytes * e_byte`; voltage falls with
the clock, so energy per operation does. Time: `t(f) = t * (clocked * F / f + 1 - clocked)`. The limiter settles where
`idle + E(f) / max(t(f), window) = limit`, with the limit at TDP for sustained runs and somewhat above for short ones,
whose power is averaged over a window that holds the launch gaps around short kernels too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshcast.estimate.energy import idle_watts, joules_per_byte
from meshcast.estimate.gpu.machine import Machine, Work

Clocks = Literal["sustained", "burst"]
LOWEST = 0.4  # of the full clock
# Catalogue energies per FLOP were measured at the clock the cap allowed, not at the full one.
MEASURED_CLOCK_SHARE = 0.76


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """Time and energy above idle at the clock that the cap allows, as a share of the full clock."""

    time: float
    joules: float
    clock_share: float


def clocked(work: Work, machine: Machine, clocks: Clocks) -> Clocked:
    """A kernel under the power cap: bisection for the highest clock within it."""
    p, device = machine.parameters, machine.device
    at_full = work.matrix_joules / MEASURED_CLOCK_SHARE**p.frequency_power + work.instructions * p.vector_picojoules * 1e-12
    moved = work.dram_bytes * joules_per_byte(device)
    limit = device.tdp_watts * (p.burst_power if clocks == "burst" else 1.0) - idle_watts(device)
    window = p.power_window_us * 1e-6 if clocks == "burst" else 0.0

    def at(share: float) -> tuple[float, float]:
        time = work.time * (work.clocked / share + 1 - work.clocked)
        return time, at_full * share**p.frequency_power + moved

    time, joules = at(1.0)
    if joules <= limit * max(time, window):
        return Clocked(time=time, joules=joules, clock_share=1.0)
    low, high = LOWEST, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        time, joules = at(middle)
        low, high = (middle, high) if joules <= limit * max(time, window) else (low, middle)
    time, joules = at(low)
    return Clocked(time=time, joules=joules, clock_share=low)
