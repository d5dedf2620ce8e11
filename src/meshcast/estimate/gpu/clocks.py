"""Power: what kernels draw at the full clock, for the cap on the program (`estimate.power`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshcast.estimate.energy import idle_watts, joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.estimate.power import Draw, PowerLaw
from meshcast.estimate.rates import Rate
from meshcast.hardware import Device

# The H200's energy per FLOP holds at the clock that its cap allowed: 1504 of 1980 MHz.
MEASURED_CLOCK_SHARE = 0.76
# Where none was measured: at that energy an H200 at its quoted peak would draw 0.786 pJ * 989 TFLOP/s = 778 W, of the
# 584 W between idle and TDP. Other GPUs are taken to be as far beyond their own cap.
OVERDRAWN = 778 / 584


def matrix_joules(flops: float, rate: Rate, device: Device) -> float:
    """Energy of products; types that were not measured take the nearest one's per FLOP, by the ratio of the rates."""
    measured = device.energy.matrix if device.energy is not None else {}
    if not measured or rate.key in measured:
        return flops * joules_per_flop(device, rate.key, rate.flops)
    nearest = min(measured, key=lambda key: abs(device.matrix_flops[key] - rate.flops))
    return flops * measured[nearest] * device.matrix_flops[nearest] / rate.flops


def power_law(machine: Machine) -> PowerLaw:
    """How the device's power follows its clock; a running kernel draws at least a share of the power budget."""
    p, device = machine.parameters, machine.device
    return PowerLaw(
        frequency_power=p.frequency_power,
        burst_limit=p.burst_power,
        burst_window=p.power_window_us * 1e-6,
        least_watts=p.active_share * (device.tdp_watts - idle_watts(device)),
    )


def power_draw(works: Sequence[Work], time: Array, machine: Machine) -> Draw:
    """Joules above idle at the full clock: `matrix + vector` follow the clock, bytes do not.

    Args:
        works: The kernels.
        time: Their seconds at the full clock.
        machine: The GPU.
    """
    p, device = machine.parameters, machine.device
    products = 1.0 if device.energy is not None and device.energy.matrix else OVERDRAWN
    products /= MEASURED_CLOCK_SHARE**p.frequency_power
    per_byte = joules_per_byte(device)
    dynamic = [w.matrix_joules * products + w.instructions * p.vector_picojoules * 1e-12 for w in works]
    return Draw(
        time=time,
        clocked=np.array([w.clocked for w in works]),
        dynamic=np.array(dynamic),
        static=np.array([w.dram_bytes * per_byte for w in works]),
        law=power_law(machine),
    )
