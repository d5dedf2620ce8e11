"""Whether a device's engines can do a kernel's arithmetic at all: the part of `supports` that every model shares."""

from __future__ import annotations

from meshcast.base import UnsupportedError
from meshcast.estimate.estimator import Support
from meshcast.estimate.rates import matrix_rate, vector_rate
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind

_YES = Support(level="yes")


def arithmetic_support(kernel: Kernel, device: Device) -> Support:
    """Yes; approximate for types that a wider engine answers for and for guessed calls; no for what has no rate."""
    if kernel.kind is KernelKind.COLLECTIVE:
        return Support(level="no", reason="collectives are timed by the network model")
    try:
        rate = matrix_rate(kernel, device) if kernel.matrix_flops else None
        if kernel.vector_flops:
            vector_rate(kernel.dtype, device)
    except UnsupportedError as error:
        return Support(level="no", reason=error.message)
    if kernel.guessed:
        return Support(level="approximate", reason="a custom call whose cost is a guess")
    if rate is not None and rate.stand_in:
        return Support(level="approximate", reason=f"{device.name} has no {kernel.dtype} engine: timed as {rate.key}")
    return _YES
