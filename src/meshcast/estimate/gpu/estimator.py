"""Fidelity `analytical` on GPUs: every kernel kind's model, then clocks, energy and interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.base import OneByOneError, PartedError, merged
from meshcast.estimate.estimator import Estimates, ProductFloor, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.gpu.attention import attention
from meshcast.estimate.gpu.convolution import convolution, convolution_product
from meshcast.estimate.gpu.elementwise import loop_fusion
from meshcast.estimate.gpu.estimates import estimates_of, is_empty
from meshcast.estimate.gpu.gemm import gemm, gemm_product
from meshcast.estimate.gpu.indexed import gather, scatter
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.other import declared, other, transpose
from meshcast.estimate.gpu.parameters import GpuCalibration, shipped_gpu_calibration
from meshcast.estimate.gpu.programs import is_program, program
from meshcast.estimate.gpu.reduction import reduction
from meshcast.estimate.gpu.solvers import solver, solver_caveat, solver_interval
from meshcast.estimate.gpu.sorting import sort
from meshcast.estimate.gpu.tiles import time_products
from meshcast.estimate.kind_model import KindModel
from meshcast.estimate.roofline import light_bounds
from meshcast.estimate.support import arithmetic_support
from meshcast.hardware import Device, devices_of
from meshcast.lower import Kernel, KernelKind

_MODELS: dict[KernelKind, KindModel[GpuMachine, GpuWork]] = {
    KernelKind.GEMM: KindModel(work=gemm),
    KernelKind.CONVOLUTION: KindModel(work=convolution),
    KernelKind.ATTENTION: KindModel(work=attention),
    KernelKind.LOOP_FUSION: KindModel(work=loop_fusion),
    KernelKind.REDUCTION: KindModel(work=reduction),
    KernelKind.TRANSPOSE: KindModel(work=transpose),
    KernelKind.GATHER: KindModel(work=gather),
    KernelKind.SCATTER: KindModel(work=scatter),
    KernelKind.SORT: KindModel(work=sort),
    KernelKind.SOLVER: KindModel(work=solver, interval=solver_interval, caveat=solver_caveat),
    KernelKind.OTHER: KindModel(work=other),
    KernelKind.CUSTOM: KindModel(work=declared),
}
_EXPLAINED = frozenset({"formula", "terms"})  # of a work: words, which nobody asks of several devices
# What kernels with tiles ask for, to time them together.
_PRODUCTS = {KernelKind.GEMM: gemm_product, KernelKind.CONVOLUTION: convolution_product}


class GpuAnalytical:
    """A model of the machine; parameters calibrated once on an H200, carried over by data-sheet ratios.

    Args:
        calibration: Parameters and intervals; the shipped ones by default.
        cold_cache: Nothing is left in L2 from what ran before; by default what fits is there.
    """

    name = "analytical"
    fidelity = "analytical"
    by_kernel = True
    by_arithmetic = True

    def __init__(self, calibration: GpuCalibration | None = None, *, cold_cache: bool = False) -> None:
        self.cold_cache = cold_cache
        self.calibration = calibration or shipped_gpu_calibration()

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """All kernels on GPUs; unknown calls and types that an engine lacks by approximation."""
        if device.kind != "gpu":
            return Support(level="no", reason=f"{device.name} is not a GPU")
        support = arithmetic_support(kernel, device)
        if support.level != "yes":
            return support
        caveat = _MODELS[kernel.kind].caveat(device)
        return replace(support, reason=caveat) if caveat else support

    def product_floor(self, device: Device) -> ProductFloor:
        """See `estimate.least`."""
        return "time"

    def work(self, kernel: Kernel, device: Device) -> GpuWork:
        """The seconds of one kernel at the full clock, with the work that they come from."""
        return self._work(kernel, self._machine(device))

    def _work(self, kernel: Kernel, machine: GpuMachine) -> GpuWork:
        devices = devices_of(machine.device)
        if devices is None:
            return self._work_of_one(kernel, machine)
        try:
            return self._work_of_one(kernel, machine)
        except (OneByOneError, PartedError):  # a number is rounded, or decides which way: this kernel on each device
            each = {one: self._work_of_one(kernel, self._machine(one)) for one in dict.fromkeys(devices)}
            return merged([each[one] for one in devices], _EXPLAINED.__contains__)

    def _work_of_one(self, kernel: Kernel, machine: GpuMachine) -> GpuWork:
        if is_empty(kernel):
            terms = machine.named(("launch", "launch", machine.launch, "s"))
            return GpuWork(time=machine.launch, formula="t = launch", terms=terms)
        return program(kernel, machine) if is_program(kernel) else _MODELS[kernel.kind].work(kernel, machine)

    def _interval(self, kind: KernelKind, device: Device) -> tuple[float, float]:
        own = _MODELS[kind].interval
        return own(device) if own is not None else self.calibration.interval(kind.value)

    def _machine(self, device: Device) -> GpuMachine:
        several = devices_of(device)
        return GpuMachine(
            device=device, parameters=self.calibration.parameters, cold_cache=self.cold_cache,
            points=len(several) if several is not None else None,
        )  # fmt: skip

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The model's formula with the terms of this kernel: the same computation, with its terms kept."""
        machine = replace(self._machine(device), explaining=True)
        work = self._work(kernel, machine)
        answer = self.estimate([kernel], device)
        (arithmetic,), (bytes_moved,) = light_bounds([kernel], device)
        light = max(arithmetic / machine.boost, bytes_moved)
        terms = (
            *work.terms,
            Term("by the formula, at the full clock", "t", work.time, "s"),
            Term("speed of light: no less than", "t_min", light, "s"),
        )
        return Explanation(
            estimator=self.name,
            model=_MODELS[kernel.kind].name,
            formula=work.formula,
            terms=terms,
            time=float(answer.time[0]),
            limited_by=limiting(answer.compute_time[0], answer.memory_time[0], answer.overhead[0], answer.cores[0]),
        )

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times, energies and intervals of kernels at the full clock; of a device that stands for several, of each of them.

        Then arrays have a row for each kernel and a place for each device (`hardware.devices_of`).
        """
        machine = self._machine(device)
        tiled = [kernel for kernel in kernels if kernel.kind in _PRODUCTS and not is_empty(kernel)]
        products = [_PRODUCTS[kernel.kind](kernel, machine) for kernel in tiled]
        time_products([product for product in products if product is not None], machine)
        works = [self._work(kernel, machine) for kernel in kernels]
        intervals = [self._interval(kernel.kind, device) for kernel in kernels]
        origins = tuple(_MODELS[kernel.kind].origin_of(kernel) for kernel in kernels)
        return estimates_of(kernels, works, machine, intervals, origins)
