"""The model that measured times are relative to: what it gets right need not be learned.

On GPUs and TPUs it is the analytical fidelity. Elsewhere it is the speed of light and a fixed cost of every kernel,

    time = max(FLOPs / P, bytes / W) + fixed,

with `fixed` the time that the shortest measured kernels take, which do next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshcast.estimate.estimator import Estimates, Estimator, Support
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.roofline import Roofline
from meshcast.estimate.tpu import TpuAnalytical
from meshcast.hardware import Device
from meshcast.lower import Kernel

SHORTEST = 0.05  # quantile of measured times that is taken for the fixed cost


class FixedCost:
    """The speed of light and a fixed cost.

    Args:
        seconds: The cost of every kernel.
    """

    name = "fixed-cost"
    fidelity = "roofline"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._light = Roofline()

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Whatever has a speed of light."""
        return self._light.supports(kernel, device)

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times of kernels."""
        light = self._light.estimate(kernels, device)
        time = light.time + self._seconds
        return replace(light, time=time, high=np.maximum(light.high, time), overhead=light.overhead + self._seconds)


def reference_model(device: Device, fixed_s: float) -> Estimator:
    """The reference of a device."""
    if device.kind == "gpu":
        return GpuAnalytical()
    return TpuAnalytical() if is_modelled(device) else FixedCost(fixed_s)


def is_modelled(device: Device) -> bool:
    """Whether the analytical fidelity answers for a device: a TPU's file must say what its arrays are."""
    return device.kind == "gpu" or (device.kind == "tpu" and device.tensor_cores is not None)


def fixed_cost(device: Device, seconds: Sequence[float]) -> float:
    """The fixed cost of a family: the time of its shortest measured kernels; 0 where the reference model has one of its own."""
    return 0.0 if is_modelled(device) or not seconds else float(np.quantile(seconds, SHORTEST))
