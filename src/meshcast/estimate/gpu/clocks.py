"""Power and clocks: what a kernel draws, the clock that the power cap allows, and the time at that clock.

Energy above idle at clock `f` (full clock `F`): `E(f) = (matrix + vector) * (f / F)^k + bytes * e_byte`; voltage falls
with the clock, so energy per operation does; a running kernel draws at least a share of the power budget. Time:
`t(f) = t * (clocked * F / f + 1 - clocked)`. The limiter settles where
`idle + E(f) / max(t(f), window) = limit`, with the limit at TDP for sustained runs and somewhat above for short ones,
whose power is averaged over a window that holds the launch gaps around short kernels too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshcast.estimate.energy import idle_watts, joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Clocks
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.estimate.rates import Rate
from meshcast.hardware import Device, load_device

LOWEST = 0.4  # of the full clock
# The H200's energy per FLOP holds at the clock that its cap allowed: 1504 of 1980 MHz.
MEASURED_CLOCK_SHARE = 0.76
# The catalogue's device whose energies stand in where none was measured.
CALIBRATED = "h200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """Time and energy above idle at the clock that the cap allows, as a share of the full clock."""

    time: float
    joules: float
    clock_share: float


def matrix_joules(flops: float, rate: Rate, device: Device) -> float:
    """Energy of products, at the clock it was measured at.

    Types that were not measured take the nearest one's per FLOP, by the ratio of the rates. A device without any takes
    the H200's per FLOP; `clocked` scales them to its clock. With smaller transistors on one side and higher clocks on
    the other this comes closer than a share of the power budget: an A100 then just keeps its clock under its cap, and a
    B200 loses a third of it, as measured ones do.
    """
    measured = _energies(device)
    if rate.key in measured:
        return flops * measured[rate.key]
    known = [key for key in measured if key in device.matrix_flops]
    if not known:
        return flops * joules_per_flop(device, rate.key, rate.flops)
    nearest = min(known, key=lambda key: abs(device.matrix_flops[key] - rate.flops))
    return flops * measured[nearest] * device.matrix_flops[nearest] / rate.flops


def _energies(device: Device) -> Mapping[str, float]:
    """Joules per FLOP by type: the device's own where they were measured."""
    own = device.energy.matrix if device.energy is not None else {}
    calibrated = load_device(CALIBRATED).energy
    return own or (calibrated.matrix if calibrated is not None else {})


def _faster(device: Device) -> float:
    """The device's clock over that of the device whose energies it takes."""
    own = device.energy is not None and bool(device.energy.matrix)
    return 1.0 if own else device.clock_hz / load_device(CALIBRATED).clock_hz


def clocked(work: Work, machine: Machine, clocks: Clocks) -> Clocked:
    """A kernel under the power cap: bisection for the highest clock within it."""
    p, device = machine.parameters, machine.device
    products = work.matrix_joules * (_faster(device) / MEASURED_CLOCK_SHARE) ** p.frequency_power
    at_full = products + work.instructions * p.vector_picojoules * 1e-12
    moved = work.dram_bytes * joules_per_byte(device)
    limit = device.tdp_watts * (p.burst_power if clocks == "burst" else 1.0) - idle_watts(device)
    least = p.active_share * (device.tdp_watts - idle_watts(device))
    window = p.power_window_us * 1e-6 if clocks == "burst" else 0.0

    def at(share: float) -> tuple[float, float]:
        time = work.time * (work.clocked / share + 1 - work.clocked)
        return time, max(at_full * share**p.frequency_power + moved, least * time)

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
