"""Measured kernels carried over to a device that nobody measured, from those of the same maker that are nearest by data sheet.

Measured times are kept relative to the reference model (`reference.py`), which is made from a device's file. What they tell of a
family at a place, by how much kernels such as these take longer than the model says, is taken to hold of the other device, too:

    time = reference(other device) exp(y),   y measured on the nearest device that has the family.

That is a guess with a wide interval, never more than extrapolated, and no part of `auto`. How far it carries was asked where both
were measured (products of the silicon tables, single ops of TPUs; `docs/cross-architecture-published.md`): it is about as near
as the reference model itself, and `SPREAD` beside a family's own deviation makes intervals hold nine in ten of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from meshcast.estimate.measurements import silicon
from meshcast.estimate.profiled.interpolator import Interpolator, shipped_devices
from meshcast.estimate.profiled.sources import measured_kernels
from meshcast.hardware import Device, load_device

SPREAD = 0.3  # of the logarithm of a time, in 5 to 95 %: what differs from device to device
OTHER_ARCHITECTURE = 1.0  # that another architecture counts as, beside factors of rates (their natural logarithm)
KINDS = frozenset({"gpu", "tpu"})  # whose reference model is one of the machine


@functools.cache
def carried_kernels(device: Device) -> tuple[Interpolator, ...]:
    """The measured kernels of other devices that could stand for a device's, the nearest first; none of other makers."""
    if device.kind not in KINDS:
        return ()
    found = sorted(_siblings(device), key=lambda other: (distance(device, other), other.name))
    return tuple(kernels for other in found if (kernels := measured_kernels(other)) is not None)


def _siblings(device: Device) -> Iterator[Device]:
    for name in dict.fromkeys((*shipped_devices(), *silicon.SYSTEMS)):
        other = load_device(name)
        if other.name != device.name and other.kind == device.kind and other.vendor == device.vendor:
            yield other


def distance(device: Device, other: Device) -> float:
    """How far two devices are apart: factors between peaks and bandwidths, and whether they are of one architecture."""
    peaks = [_peak(each) for each in (device, other)]
    rates = abs(math.log(peaks[0] / peaks[1])) if all(peaks) else OTHER_ARCHITECTURE
    rates += abs(math.log(device.memory_bandwidth / other.memory_bandwidth))
    return rates + (0.0 if device.architecture == other.architecture else OTHER_ARCHITECTURE)


def _peak(device: Device) -> float:
    return device.matrix_flops.get("bf16") or device.matrix_flops.get("f16") or 0.0


def carried_note(device: Device, own: Interpolator | None) -> str:
    """What a prediction with carried kernels should say."""
    names = ", ".join(each.device for each in carried_kernels(device))
    some = f"nothing was measured on {device.name}: kernels"
    if own is not None:
        some = f"some kernels were measured on {device.name}, others"
    return f"{some} are carried over from {names} by the reference model, with wider intervals"
