"""Power: what kernels draw at the full clock, for the cap on the program (`estimate.power`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshcast.base import rows_of
from meshcast.estimate.energy import idle_watts, joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.power import PowerDraw, PowerLaw, ValueShares
from meshcast.estimate.rates import Rate
from meshcast.hardware import Device, load_device

# The H200's energy per FLOP holds at the clock that its cap allowed: 1504 of 1980 MHz.
MEASURED_CLOCK_SHARE = 0.76
# The catalogue's device whose energies stand in where none was measured.
CALIBRATED_DEVICE = "h200"
_OWN = "measured"  # the source of energies that this project measured, on uniform numbers


def matrix_joules(flops: float, rate: Rate, device: Device) -> float:
    """Energy of products, at the clock it was measured at.

    Types that were not measured take the nearest one's per FLOP, by the ratio of the rates. A device without any takes
    the H200's per FLOP, and `power_draw` scales them to its clock: what larger transistors draw more is left out, so older
    GPUs draw more than that (an A100, which has its own, 1.8 times as much).
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
    if device.energy is not None and device.energy.matrix:
        return device.energy.matrix
    calibrated = load_device(CALIBRATED_DEVICE).energy
    return calibrated.matrix if calibrated is not None else {}


def _faster(device: Device) -> float:
    """The device's clock over that of the device whose energies it takes."""
    own = device.energy is not None and bool(device.energy.matrix)
    return 1.0 if own else device.clock_hz / load_device(CALIBRATED_DEVICE).clock_hz


def power_law(machine: GpuMachine) -> PowerLaw:
    """How the device's power follows its clock; a running kernel draws at least a share of the power budget."""
    p, device = machine.parameters, machine.device
    return PowerLaw(
        frequency_power=p.frequency_power,
        burst_limit=p.burst_power,
        burst_window=p.power_window_us * 1e-6,
        least_watts=p.active_share * (device.tdp_watts - idle_watts(device)),
        variation=p.clock_variation,
        values={
            "normal": ValueShares(dynamic=1.0 if _held_normal_numbers(device) else p.normal_dynamic),
            "half-zeros": ValueShares(dynamic=p.half_zeros_dynamic, static=p.half_zeros_static),
            "zeros": ValueShares(dynamic=p.zeros_dynamic, static=p.zeros_static),
        },
    )


def _held_normal_numbers(device: Device) -> bool:
    """Whether a device's energies come from products of normally distributed numbers: those that others timed.

    The project's own on an H200 (`measured`), which stand in for devices without any, come from uniform ones.
    """
    sources = {fact.source for name, fact in device.facts.items() if name.startswith("energy.matrix.")}
    return bool(sources) and _OWN not in sources


def power_draw(works: Sequence[GpuWork], time: Array, machine: GpuMachine) -> PowerDraw:
    """Joules above idle at the full clock: `matrix + vector` follow the clock, bytes do not.

    Args:
        works: The kernels.
        time: Their seconds at the full clock.
        machine: The GPU.
    """
    p, device = machine.parameters, machine.device
    products = (_faster(device) / MEASURED_CLOCK_SHARE) ** p.frequency_power
    per_byte = joules_per_byte(device)
    dynamic = [w.matrix_joules * products + w.instructions * p.vector_picojoules * 1e-12 for w in works]
    return PowerDraw(
        time=time,
        clocked=rows_of((w.clocked for w in works), machine.points),
        dynamic=rows_of(dynamic, machine.points),
        static=rows_of((w.dram_bytes * per_byte for w in works), machine.points),
        law=power_law(machine),
    )
