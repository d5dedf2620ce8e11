"""A chain of estimators with explicit fallback: each kernel is answered by the first that supports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from meshcast.errors import UnsupportedError
from meshcast.estimate.estimator import Array, Estimates, Estimator, Origin
from meshcast.hardware import Device
from meshcast.lower.kernel import CostKey, Kernel, LoweredProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEstimate:
    """One kernel's answer and who gave it."""

    time: float
    low: float
    high: float
    compute_time: float
    memory_time: float
    overhead: float
    energy: float
    origin: Origin
    estimator: str

    @property
    def limited_by(self) -> str:
        """compute, memory or latency."""
        if self.overhead > max(self.compute_time, self.memory_time):
            return "latency"
        return "compute" if self.compute_time >= self.memory_time else "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedKernels:
    """Answers by cost key: equal kernels are costed once."""

    by_key: dict[CostKey, KernelEstimate] = field(repr=False)
    warnings: tuple[str, ...] = ()
    gap: float = 0.0  # seconds between consecutive kernels of a stream

    def __getitem__(self, kernel: Kernel) -> KernelEstimate:
        return self.by_key[kernel.cost_key]


def estimate_kernels(
    lowered: LoweredProgram, device: Device, estimators: Sequence[Estimator], *, approximate: bool = False
) -> EstimatedKernels:
    """Every compute kernel's time, from the first estimator of the chain that supports it.

    Raises:
        UnsupportedError: no estimator answers for a kernel, or only by approximation and that was not allowed.
    """
    unique = {k.cost_key: k for k, _ in lowered.schedule.walk() if k.collective is None}
    batches: dict[int, list[Kernel]] = {}
    warnings: dict[str, None] = {}
    for kernel in unique.values():
        position, note = _choose(kernel, device, estimators, approximate)
        batches.setdefault(position, []).append(kernel)
        if note:
            warnings[note] = None
    gap = 0.0
    answers: dict[CostKey, KernelEstimate] = {}
    for position, kernels in batches.items():
        estimates = estimators[position].estimate(kernels, device)
        _check(estimates, len(kernels), estimators[position].name)
        gap = max(gap, estimates.gap)
        for index, kernel in enumerate(kernels):
            answers[kernel.cost_key] = _single(estimates, index, estimators[position].name)
    return EstimatedKernels(by_key=answers, warnings=tuple(warnings), gap=gap)


def _choose(kernel: Kernel, device: Device, estimators: Sequence[Estimator], approximate: bool) -> tuple[int, str]:
    fallback: tuple[int, str] | None = None
    reasons = []
    for position, estimator in enumerate(estimators):
        support = estimator.supports(kernel, device)
        if support.level == "yes":
            return position, ""
        if support.level == "approximate" and fallback is None:
            fallback = position, support.reason
        reasons.append(f"{estimator.name}: {support.reason}")
    if fallback is not None and (approximate or not kernel.guessed):
        return fallback
    raise UnsupportedError(
        f"no estimator answers for {kernel.name} on {device.name} ({'; '.join(reasons)})",
        where=kernel.location or kernel.name,
        fix="choose another fidelity or device, or go on with --approximate",
    )


def _check(estimates: Estimates, count: int, name: str) -> None:
    columns: tuple[Array, ...] = (
        estimates.time, estimates.low, estimates.high, estimates.compute_time, estimates.memory_time,
        estimates.overhead, estimates.energy,
    )  # fmt: skip
    if any(column.shape != (count,) or not np.all(np.isfinite(column)) or np.any(column < 0) for column in columns):
        raise UnsupportedError(
            f"the estimator {name!r} returned times that are not finite, non-negative numbers", where=name
        )
    if (
        len(estimates.origin) != count
        or np.any(estimates.low > estimates.time)
        or np.any(estimates.time > estimates.high)
    ):
        raise UnsupportedError(f"the estimator {name!r} returned times outside their own interval", where=name)


def _single(estimates: Estimates, index: int, estimator: str) -> KernelEstimate:
    return KernelEstimate(
        time=float(estimates.time[index]),
        low=float(estimates.low[index]),
        high=float(estimates.high[index]),
        compute_time=float(estimates.compute_time[index]),
        memory_time=float(estimates.memory_time[index]),
        overhead=float(estimates.overhead[index]),
        energy=float(estimates.energy[index]),
        origin=estimates.origin[index],
        estimator=estimator,
    )
