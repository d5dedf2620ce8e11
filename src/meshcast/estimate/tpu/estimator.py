"""Fidelity `analytical` on TPUs: every kernel kind's model, then interval and energy."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshcast.estimate.estimator import Estimates, Origin, ProductFloor, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.kind_model import KindModel
from meshcast.estimate.roofline import Roofline
from meshcast.estimate.support import arithmetic_support
from meshcast.estimate.tpu import solvers
from meshcast.estimate.tpu.attention import attention
from meshcast.estimate.tpu.indexed import gather, picked_slices, scatter, sort
from meshcast.estimate.tpu.machine import TimedWork, TpuMachine
from meshcast.estimate.tpu.matrix import product
from meshcast.estimate.tpu.parameters import TpuCalibration, shipped_tpu_calibration
from meshcast.estimate.tpu.vector import call, loop
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind

_MODELS: dict[KernelKind, KindModel[TpuMachine, TimedWork]] = {
    KernelKind.GEMM: KindModel(work=product),
    KernelKind.CONVOLUTION: KindModel(work=product),
    KernelKind.ATTENTION: KindModel(work=attention),
    KernelKind.CUSTOM: KindModel(work=call),
    KernelKind.SCATTER: KindModel(work=scatter),
    KernelKind.SORT: KindModel(work=sort),
    KernelKind.SOLVER: KindModel(
        work=solvers.solver,
        interval=lambda device: solvers.INTERVAL,
        caveat=lambda device: solvers.CAVEAT,
        origin=Origin.GUESSED,
    ),
}
_GATHER: KindModel[TpuMachine, TimedWork] = KindModel(work=gather)
_LOOP: KindModel[TpuMachine, TimedWork] = KindModel(work=loop)


def model_of(kernel: Kernel) -> KindModel[TpuMachine, TimedWork]:
    """The model that answers: by kind, and for anything else as a loop, with or without picked slices."""
    return _MODELS.get(kernel.kind) or (_GATHER if picked_slices(kernel) else _LOOP)


class TpuAnalytical:
    """A model of the machine, calibrated on the TPU compiler's own cycles and on published times.

    Args:
        calibration: Parameters and intervals; the shipped ones by default.
    """

    name = "analytical"
    fidelity = "analytical"
    by_kernel = True
    by_arithmetic = True

    def __init__(self, calibration: TpuCalibration | None = None) -> None:
        self.calibration = calibration or shipped_tpu_calibration()

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """All kernels on TPUs whose file knows their arrays; unknown calls by approximation."""
        if device.kind != "tpu":
            return Support(level="no", reason=f"{device.name} is not a TPU")
        if device.tensor_cores is None:
            return Support(level="no", reason=f"{device.name} says nothing about its systolic arrays")
        support = arithmetic_support(kernel, device)
        return replace(support, reason=model_of(kernel).caveat(device)) if support.level == "yes" else support

    def product_floor(self, device: Device) -> ProductFloor:
        """See `estimate.least`."""
        return "core_time"

    def work(self, kernel: Kernel, device: Device) -> TimedWork:
        """The seconds of one kernel, with the work that they come from."""
        return model_of(kernel).work(kernel, self._machine(device))

    def _machine(self, device: Device) -> TpuMachine:
        return TpuMachine(device=device, parameters=self.calibration.parameters)

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The model's formula with the terms of this kernel: the same computation, with its terms kept."""
        model = model_of(kernel)
        work = model.work(kernel, replace(self._machine(device), explaining=True))
        answer = self.estimate([kernel], device)
        return Explanation(
            estimator=self.name,
            model=model.name,
            formula=work.formula,
            terms=(*work.terms, Term("by the formula", "t", work.time, "s")),
            time=float(answer.time[0]),
            limited_by=limiting(answer.compute_time[0], answer.memory_time[0], answer.overhead[0], answer.cores[0]),
        )

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times, intervals and energies of kernels."""
        machine = self._machine(device)
        models = [model_of(kernel) for kernel in kernels]
        works = [model.work(kernel, machine) for model, kernel in zip(models, kernels, strict=True)]
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        bound = Roofline().estimate(kernels, device)
        # Never faster than light, where arithmetic is concerned: VMEM may well be faster than the memory.
        time = np.maximum(column(w.time for w in works), bound.compute_time)
        cores = np.minimum(column(w.compute for w in works), time)
        memory = np.minimum(column(w.memory for w in works), time)
        intervals = [
            model.interval(device) if model.interval is not None else self.calibration.interval(kernel.kind.value)
            for model, kernel in zip(models, kernels, strict=True)
        ]
        return Estimates(
            time=time,
            low=np.maximum(time * column(min(1.0, low) for low, _ in intervals), bound.compute_time),
            high=time * column(max(1.0, high) for _, high in intervals),
            compute_time=np.minimum(column(w.arithmetic for w in works), time),
            core_time=cores,
            memory_time=memory,
            overhead=np.minimum(column(w.overhead for w in works), time - np.maximum(cores, memory)),
            energy=bound.energy,
            origin=tuple(model.origin_of(kernel) for model, kernel in zip(models, kernels, strict=True)),
        )
