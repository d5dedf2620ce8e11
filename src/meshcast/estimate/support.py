"""Whether a device's engines can do a kernel's arithmetic at all: the part of `supports` that every model shares."""

from __future__ import annotations

from meshcast.base import UnsupportedError
from meshcast.estimate.estimator import Support
from meshcast.estimate.rates import matrix_rate, vector_rate
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Attention, Convolution, Gemm

_YES = Support(level="yes")
# What `arithmetic_support` looks at of a kernel.
Arithmetic = tuple[KernelKind, str, str | None, bool, bool, bool]


def arithmetic_of(kernel: Kernel) -> Arithmetic:
    """All of a kernel that decides whether engines can do its arithmetic: its kind and types, and whether it is guessed."""
    shape = kernel.geometry
    precise = (
        shape.precision
        if isinstance(shape, Gemm | Convolution)
        else "attention"
        if isinstance(shape, Attention)
        else None
    )
    return kernel.kind, kernel.dtype, precise, bool(kernel.matrix_flops), bool(kernel.vector_flops), kernel.guessed


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
    if rate is not None and device.kind == "npu" and not rate.on_tensor_cores:
        slower = max(device.matrix_flops.values()) / rate.flops
        return Support(
            level="approximate",
            reason=f"{device.name}'s arrays take {', '.join(device.matrix_flops)} and no {kernel.dtype}: its products are "
            f"timed on the units beside them, {slower:.3g} times slower than the arrays",
        )
    return _YES
