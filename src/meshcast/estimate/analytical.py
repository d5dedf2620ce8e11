"""Fidelity `analytical`: the model of the device's kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from meshcast.estimate.cells import CellsAnalytical
from meshcast.estimate.estimator import Estimates, ProductFloor, Support
from meshcast.estimate.explanation import Explanation
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.tpu import TpuAnalytical
from meshcast.hardware import Device
from meshcast.lower import Kernel

MODELLED_KINDS = ("gpu", "tpu", "npu")


class Analytical:
    """GPUs, TPUs and NPUs, each by a model of its own; other kinds are refused."""

    name = "analytical"
    fidelity = "analytical"
    by_kernel = True
    by_arithmetic = True

    @cached_property
    def _gpu(self) -> GpuAnalytical:
        return GpuAnalytical()

    @cached_property
    def _tpu(self) -> TpuAnalytical:
        return TpuAnalytical()

    @cached_property
    def _cells(self) -> CellsAnalytical:
        return CellsAnalytical()

    def _model(self, device: Device) -> GpuAnalytical | TpuAnalytical | CellsAnalytical:
        if device.kind == "npu":
            return self._cells
        return self._tpu if device.kind == "tpu" else self._gpu

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Whether the model of the device's kind answers for the kernel."""
        if device.kind not in MODELLED_KINDS:
            return Support(level="no", reason=f"{device.name} is neither a GPU nor a TPU nor an NPU")
        return self._model(device).supports(kernel, device)

    def answers_several(self, device: Device) -> bool:
        """Whether, asked about a device that stands for several, it answers for each of them (`estimate.at_points`)."""
        return device.kind == "gpu"

    def product_floor(self, device: Device) -> ProductFloor:
        """See `estimate.least`."""
        return self._model(device).product_floor(device)

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The formula of the device's model."""
        return self._model(device).explain(kernel, device)

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times by the device's model."""
        return self._model(device).estimate(kernels, device)
