"""A chain of estimators with explicit fallback: each kernel is answered by the first that supports it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside, NumberColumn, UnsupportedError, copier, made_quickly
from meshcast.estimate.clock_columns import FullColumns, moving_data, slowed_columns
from meshcast.estimate.estimator import Array, Estimates, Estimator, Origin, limiting
from meshcast.estimate.known_answers import ChainAnswers, chain_answers, is_by_kernel
from meshcast.estimate.plug_ins import asked_estimates, asked_support
from meshcast.estimate.power import PowerDraw, PowerLaw, Values, ValueShares
from meshcast.estimate.support import arithmetic_of
from meshcast.hardware import Device
from meshcast.lower import CostKey, Kernel, LoweredProgram
from meshcast.workload import CODE_CLOCK_HZ, CodeShape


@made_quickly
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
    clocked: float = 0.0  # share of the time that follows the clock
    dynamic_energy: float = 0.0  # joules that follow it; `static_energy` do not
    static_energy: float = 0.0
    core_time: float = 0.0  # `compute_time`, or what carrying data takes the cores where that is more
    # Whether what is not overhead of the time is spent on moving data, and not on arithmetic: asked for often.
    moves_data: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if limiting(self.compute_time, self.memory_time, 0.0, self.core_time) == "memory":
            object.__setattr__(self, "moves_data", True)

    def taking(self, seconds: float) -> KernelEstimate:
        """A copy of the estimate with another time."""
        return _taking(self, seconds)

    @property
    def limited_by(self) -> str:
        """compute, memory or latency."""
        return limiting(self.compute_time, self.memory_time, self.overhead, self.core_time)


_taking = copier(KernelEstimate, "time")
_single = copier(
    KernelEstimate, "estimator", "origin", "time", "low", "high", "compute_time", "memory_time", "core_time", "overhead",
    "energy", "clocked", "dynamic_energy", "static_energy", "moves_data",
)  # fmt: skip
_clocked = copier(
    KernelEstimate, "time", "low", "high", "compute_time", "core_time", "overhead", "energy", "moves_data"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedKernels:
    """Answers by cost key: equal kernels are costed once."""

    by_key: dict[CostKey, KernelEstimate] = field(repr=False)
    warnings: tuple[str, ...] = ()
    gap: float = 0.0  # seconds between consecutive kernels of a stream
    law: PowerLaw | None = None
    estimators: frozenset[str] = frozenset()  # names of those that answered; none where nobody says

    def __getitem__(self, kernel: Kernel) -> KernelEstimate:
        return self.by_key[kernel.cost_key]

    def draw(self, kernels: Sequence[Kernel]) -> PowerDraw | None:
        """The power that the kernels draw, from which the clock under the power cap follows; None where no model knows it."""
        law = self.law
        if law is None:
            return None
        # Sweeps ask about the same kernels: these are held with what they draw, so that no others have their identity.
        return _DRAWS.of(self, id(kernels), lambda: (kernels, _drawn(self, kernels, law)))[1]

    def holding(self, values: Values) -> EstimatedKernels:
        """The same kernels where arrays hold other values than random ones: times stay, joules at the full clock change."""
        if values == "random":
            return self
        if self.law is None or values not in self.law.values:
            note = f"--data {values} changes nothing: no model here knows what values do to power"
            return replace(self, warnings=(*self.warnings, note))
        shares, law = self.law.values[values], self.law
        return replace(self, by_key={key: _with_shares(e, shares, law) for key, e in self.by_key.items()})

    def at_clock(self, share: float) -> EstimatedKernels:
        """The same kernels at a share of the full clock."""
        law = self.law
        if law is None or share == 1.0:
            return self
        if isinstance(share, NumberColumn):
            from meshcast.estimate.kernel_columns import at_clocks  # which is made of these

            return at_clocks(self, share)
        columns = slowed_columns(columns_of_full(self), share, share**law.frequency_power, law)
        told = (each.tolist() for each in columns)
        return replace(self, by_key=dict(zip(self.by_key, map(_clocked, self.by_key.values(), *told), strict=True)))


_DRAWS: KeptBeside[tuple[Sequence[Kernel], PowerDraw]] = KeptBeside()


def _drawn(estimated: EstimatedKernels, kernels: Sequence[Kernel], law: PowerLaw) -> PowerDraw:
    column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
    found = [estimated.by_key[kernel.cost_key] for kernel in kernels]
    return PowerDraw(
        time=column(e.time for e in found),
        clocked=column(e.clocked for e in found),
        dynamic=column(e.dynamic_energy for e in found),
        static=column(e.static_energy for e in found),
        law=law,
    )


def estimate_kernels(
    lowered: LoweredProgram, device: Device, estimators: Sequence[Estimator], *,
    first_named: bool = False,
) -> EstimatedKernels:  # fmt: skip
    """Every compute kernel's time, from the first estimator of the chain that supports it.

    An approximation is taken where no estimator says yes. The first of the chain, where the user named it, is asked for
    itself: its approximations count as answers, each with a warning.

    Args:
        lowered: The kernels.
        device: What they run on.
        estimators: The chain, first the one to ask first.
        first_named: The first estimator was chosen by name.

    Raises:
        UnsupportedError: no estimator answers for a kernel.
    """
    chain = tuple(estimators)
    known = chain_answers(chain, device, first_named=first_named)
    unique = unique_kernels(lowered)
    if not all(map(is_by_kernel, chain)):
        return _estimated(unique, device, chain, known, first_named=first_named)
    return known.programs.of(
        lowered.schedule, None, lambda: _estimated(unique, device, chain, known, first_named=first_named)
    )


_UNIQUE: KeptBeside[dict[CostKey, Kernel]] = KeptBeside()


def unique_kernels(lowered: LoweredProgram) -> dict[CostKey, Kernel]:
    """The compute kernels of a program, of equal ones the last."""
    return _UNIQUE.of(lowered.schedule, None, lambda: _unique(lowered))


def _unique(lowered: LoweredProgram) -> dict[CostKey, Kernel]:
    return {kernel.cost_key: kernel for kernel, _ in lowered.schedule.walk() if kernel.collective is None}


def estimate_each(
    kernels: Iterable[Kernel], device: Device, estimators: Sequence[Estimator], *,
    first_named: bool = False,
) -> EstimatedKernels:  # fmt: skip
    """Times of any compute kernels, by the first estimator of the chain that supports each.

    Estimators that answer for each kernel by itself (`by_kernel`) are asked once for a kernel on a device: other programs
    that have the same one get the same answer.
    """
    known = chain_answers(tuple(estimators), device, first_named=first_named)
    unique = {kernel.cost_key: kernel for kernel in kernels}
    return _estimated(unique, device, estimators, known, first_named=first_named)


def _estimated(
    unique: Mapping[CostKey, Kernel], device: Device, estimators: Sequence[Estimator], known: ChainAnswers, *,
    first_named: bool,
) -> EstimatedKernels:  # fmt: skip
    batches: dict[int, list[Kernel]] = {}
    warnings: dict[str, None] = {}
    for key, kernel in unique.items():
        place = known.places.get(key)
        if place is None:
            place = known.places[key] = place_of(kernel, device, estimators, known, first_named=first_named)
        batches.setdefault(place[0], []).append(kernel)
        if place[1]:
            warnings[place[1]] = None
    gap, law = 0.0, None
    answers: dict[CostKey, KernelEstimate] = {}
    for position, batch in batches.items():
        estimator = estimators[position]
        kept = known.estimates.setdefault(position, {}) if is_by_kernel(estimator) else {}
        new = [kernel for kernel in batch if kernel.cost_key not in kept]
        if new:
            estimates = asked_estimates(estimator, new, device)
            check_estimates(estimates, (len(new),), estimator.name)
            known.rules[position] = estimates.gap, estimates.draw.law if estimates.draw is not None else None
            for kernel, answer in zip(new, _singles(estimates, estimator.name), strict=True):
                kept[kernel.cost_key] = answer if kernel.code is None else _shaped(answer, kernel.code, device)
        gap = max(gap, known.rules[position][0])
        law = law or known.rules[position][1]
        for kernel in batch:
            answers[kernel.cost_key] = kept[kernel.cost_key]
    asked = frozenset(estimators[position].name for position in batches)
    return EstimatedKernels(by_key=answers, warnings=tuple(warnings), gap=gap, law=law, estimators=asked)


def _shaped(found: KernelEstimate, code: CodeShape, device: Device) -> KernelEstimate:
    """The estimate of code that gets only a share of the memory's rate: what is no overhead takes so much longer.

    Nor is it shorter than its slowest block. What it waits for takes as many cycles as where it was measured.
    """
    working = max(0.0, found.time - found.overhead)
    longer = max(working / code.share, code.block_cycles / device.clock_hz) - working
    longer += code.extra * (CODE_CLOCK_HZ / device.clock_hz) + code.wait_cycles / device.clock_hz
    return replace(
        found,
        time=found.time + longer,
        low=found.low + longer,
        high=found.high + longer,
        memory_time=found.memory_time / code.share,
    )


def place_of(
    kernel: Kernel, device: Device, estimators: Sequence[Estimator], known: ChainAnswers, *, first_named: bool
) -> tuple[int, str]:
    """`_choose`, asked once for all kernels of a kind and type where no estimator looks at more than that."""
    if not known.by_arithmetic:
        return _choose(kernel, device, estimators, first_named)
    arithmetic = arithmetic_of(kernel)
    found = known.of_arithmetic.get(arithmetic)
    if found is None:
        found = known.of_arithmetic[arithmetic] = _choose(kernel, device, estimators, first_named)
    return found


def _choose(kernel: Kernel, device: Device, estimators: Sequence[Estimator], first_named: bool) -> tuple[int, str]:
    """(place in the chain, warning) of who answers for a kernel."""
    fallback: tuple[int, str] | None = None
    reasons = []
    for position, estimator in enumerate(estimators):
        support = asked_support(estimator, kernel, device)
        if support.level == "yes":
            return position, support.reason
        if support.level == "approximate" and fallback is None:
            if first_named and position == 0:
                return position, f"{estimator.name}: {support.reason}"
            fallback = position, support.reason
        reasons.append(f"{estimator.name}: {support.reason}")
    if fallback is not None:
        return fallback
    raise UnsupportedError(
        f"no estimator answers for {kernel.name} on {device.name} ({'; '.join(reasons)})",
        where=kernel.location or kernel.name,
        fix="choose another fidelity or device",
    )


def answering(kernel: Kernel, device: Device, estimators: Sequence[Estimator], *, first_named: bool = False) -> int:
    """The place in the chain of the estimator that answers for a compute kernel; it is not asked for a time.

    Raises:
        UnsupportedError: None does.
    """
    return _choose(kernel, device, estimators, first_named)[0]


def check_estimates(estimates: Estimates, shape: tuple[int, ...], name: str) -> None:
    """Sees to it that answers are numbers, as many as there should be.

    Raises:
        UnsupportedError: They are not.
    """
    columns: tuple[Array, ...] = (
        estimates.time, estimates.low, estimates.high, estimates.compute_time, estimates.memory_time,
        estimates.overhead, estimates.energy, estimates.cores,
    )  # fmt: skip
    if any(not isinstance(column, np.ndarray) or column.dtype.kind not in "fiu" for column in columns):
        raise UnsupportedError(f"the estimator {name!r} returned times that are no arrays of numbers", where=name)
    if any(column.shape != shape or not np.all(np.isfinite(column)) or np.any(column < 0) for column in columns):
        raise UnsupportedError(
            f"the estimator {name!r} returned times that are not finite, non-negative numbers", where=name
        )
    if (
        len(estimates.origin) != shape[0]
        or np.any(estimates.low > estimates.time)
        or np.any(estimates.time > estimates.high)
    ):
        raise UnsupportedError(f"the estimator {name!r} returned times outside their own interval", where=name)


def _with_shares(found: KernelEstimate, shares: ValueShares, law: PowerLaw) -> KernelEstimate:
    """The estimate with these shares of its joules."""
    dynamic, static = found.dynamic_energy * shares.dynamic, found.static_energy * shares.static
    return replace(
        found, dynamic_energy=dynamic, static_energy=static, energy=float(law.joules(dynamic, static, found.time, 1.0))
    )


_COLUMNS: KeptBeside[FullColumns] = KeptBeside()  # each clock of a step asks for them


def columns_of_full(kernels: EstimatedKernels) -> FullColumns:
    """Estimates at the full clock as columns, a place for each kernel."""
    return _COLUMNS.of(kernels, None, lambda: _columns(tuple(kernels.by_key.values())))


def _columns(found: tuple[KernelEstimate, ...]) -> FullColumns:
    column = functools.partial(np.fromiter, dtype=np.float64, count=len(found))
    return FullColumns(**{each.name: column(getattr(e, each.name) for e in found) for each in fields(FullColumns)})


def _singles(estimates: Estimates, estimator: str) -> list[KernelEstimate]:
    """The answer for each kernel of a batch."""
    draw = estimates.draw
    none = np.zeros(len(estimates.origin))
    columns: tuple[npt.NDArray[np.generic], ...] = (
        estimates.time,
        estimates.low,
        estimates.high,
        estimates.compute_time,
        estimates.memory_time,
        estimates.cores,
        estimates.overhead,
        estimates.energy,
        draw.clocked if draw is not None else none,
        draw.dynamic if draw is not None else none,
        draw.static if draw is not None else estimates.energy,
        moving_data(estimates.compute_time, estimates.memory_time, estimates.cores),
    )
    listed = (column.tolist() for column in columns)
    return [_single(None, estimator, *values) for values in zip(estimates.origin, *listed, strict=True)]
