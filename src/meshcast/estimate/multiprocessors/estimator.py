"""Fidelity `simulated` on GPUs: every kernel's blocks played on the device's SMs (`docs/gpu-simulator.md`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshcast.estimate.estimator import Estimates, Origin, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.gpu.convolution import why_special
from meshcast.estimate.gpu.estimates import estimates_of, is_empty
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
from meshcast.estimate.gpu.reduction import reduction_form
from meshcast.estimate.multiprocessors.attention import attention
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.convolutions import convolution
from meshcast.estimate.multiprocessors.gemm import gemm
from meshcast.estimate.multiprocessors.parameters import SmParameters
from meshcast.estimate.multiprocessors.reductions import reduction
from meshcast.estimate.multiprocessors.streaming import loop_fusion, transpose
from meshcast.estimate.support import arithmetic_support
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Attention, Convolution, Gemm

_MODELS: dict[KernelKind, Callable[[Kernel, Chip, GpuMachine], GpuWork]] = {
    KernelKind.GEMM: gemm,
    KernelKind.CONVOLUTION: convolution,
    KernelKind.ATTENTION: attention,
    KernelKind.LOOP_FUSION: loop_fusion,
    KernelKind.REDUCTION: reduction,
    KernelKind.TRANSPOSE: transpose,
}
_GEOMETRIES = {
    KernelKind.GEMM: Gemm,
    KernelKind.CONVOLUTION: Convolution,
    KernelKind.ATTENTION: Attention,
}
_REDUCTIONS = {"scan": "a prefix sum", "picked": "a sum of gathered rows"}


class GpuSimulated:
    """Thread blocks on SMs, event by event.

    Args:
        parameters: Of the simulator; the shipped ones by default.
    """

    name = "multiprocessors"
    fidelity = "simulated"
    by_kernel = True
    by_arithmetic = False

    def __init__(self, parameters: SmParameters | None = None) -> None:
        self.parameters = parameters or SmParameters()
        # Instruction counts, energies and how libraries align operands are those of the analytical model.
        self._calibration = shipped_gpu_calibration()

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Products, convolutions, attention, reductions, loops and transposes on GPUs whose file describes an SM."""
        if device.kind != "gpu" or device.core is None:
            return Support(level="no", reason=f"{device.name} has no SMs to simulate: no [core] in its file")
        if kernel.kind not in _MODELS:
            return Support(level="no", reason=f"no simulator of blocks for {kernel.kind.value} kernels")
        shape, wanted = kernel.geometry, _GEOMETRIES.get(kernel.kind)
        if wanted is not None and not isinstance(shape, wanted):
            return Support(level="no", reason=f"a {kernel.kind.value} without its sides")
        if isinstance(shape, Convolution) and (why := why_special(shape)):
            return Support(level="no", reason=why)
        if kernel.kind is KernelKind.REDUCTION and (what := _REDUCTIONS.get(reduction_form(kernel))):
            return Support(level="no", reason=f"no simulator of blocks for {what}")
        return arithmetic_support(kernel, device)

    def _machine(self, device: Device) -> GpuMachine:
        return GpuMachine(device=device, parameters=self._calibration.parameters)

    def _work(self, kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
        if is_empty(kernel):
            return GpuWork(time=chip.launch, formula="t = launch")
        return _MODELS[kernel.kind](kernel, chip, machine)

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times, energies and intervals of kernels at the full clock."""
        machine, chip = self._machine(device), Chip(device=device, parameters=self.parameters)
        works = [self._work(kernel, chip, machine) for kernel in kernels]
        intervals = [self._calibration.interval(kernel.kind.value) for kernel in kernels]
        origins = tuple(Origin.GUESSED if kernel.guessed else Origin.SIMULATED for kernel in kernels)
        return estimates_of(kernels, works, machine, intervals, origins)

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The launch that was played: its blocks, what an SM holds, and what was busy for how long."""
        machine = replace(self._machine(device), explaining=True)
        work = self._work(kernel, Chip(device=device, parameters=self.parameters), machine)
        answer = self.estimate([kernel], device)
        return Explanation(
            estimator=self.name,
            model=f"thread blocks on {device.cores} SMs, event by event",
            formula=work.formula,
            terms=(*work.terms, Term("by the simulator, at the full clock", "t", work.time, "s")),
            time=float(answer.time[0]),
            limited_by=limiting(answer.compute_time[0], answer.memory_time[0], answer.overhead[0], answer.cores[0]),
        )
