"""Fits how far above the speed of light programs run: the upper end of roofline's intervals.

A kernel's upper end is `factor * t + launches * L`, with t its roofline time and L the device's launch latency. The
program's is the sum over its n kernels, `high = factor * T + launches * L * n`. Two numbers for all devices, programs
and groups: anything finer belongs to the analytical fidelity.

Among the pairs that leave at most `1 - COVERAGE` of the fitted rows above `high`, each group weighing the same, the
fit takes the one with the narrowest intervals: least mean `ln(high / T)`. For a given `launches` the least such
`factor` is a weighted quantile of `(m - launches * L * n) / T` over measured times m, so one sweep over `launches`
finds it. Rows that ran faster than T are no business of the upper end, but count as outside in the coverage reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError
from meshcast.evidence.validate.programs import ProgramRow, in_fit

COVERAGE = 0.93
# Smaller groups of a half are pooled: where every group weighs the same, a group of one row would decide alone.
MIN_GROUP = 5
# Launch latencies per kernel that are tried, and the step in which both numbers are written: two digits are all that
# some hundred rows can carry.
MAX_LAUNCHES = 20.0
STEP = 0.1

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Rows as arrays: measured and speed-of-light microseconds, kernels, and weights that add up to 1."""

    measured: Floats
    bound: Floats
    kernels: Floats
    weight: Floats

    def high(self, factor: float, launches: float, latency_us: float) -> Floats:
        """Upper ends."""
        return factor * self.bound + launches * latency_us * self.kernels

    def coverage(self, factor: float, launches: float, latency_us: float) -> float:
        """Share of rows inside their intervals, groups weighing the same."""
        return float(self.weight[self.inside(factor, launches, latency_us)].sum())

    def inside(self, factor: float, launches: float, latency_us: float) -> npt.NDArray[np.bool_]:
        """Which rows lie in their intervals."""
        return (self.measured >= self.bound) & (self.measured <= self.high(factor, launches, latency_us))

    def width(self, factor: float, launches: float, latency_us: float) -> float:
        """Mean `ln(high / low)`, groups weighing the same."""
        return float((self.weight * np.log(self.high(factor, launches, latency_us) / self.bound)).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFit:
    """The two numbers, the rows of both halves, and the share of each that lies inside."""

    factor: float
    launches: float
    fitted_rows: int
    fitted_coverage: float
    held_out_rows: int
    held_out_coverage: float
    held_out_unweighted: float
    width: float  # geometric mean of high / low on the fitted half


def fit_intervals(rows: Sequence[ProgramRow], latency_us: float, *, coverage: float = COVERAGE) -> IntervalFit:
    """The narrowest intervals that hold `coverage` of one half of the rows, judged on the other half.

    Args:
        rows: Predictions at fidelity roofline beside their measurements.
        latency_us: The device's launch latency.
        coverage: Share of rows that should lie inside.
    """
    known = [row for row in rows if row.time is not None]
    fitted, held_out = (_half([row for row in known if in_fit(row) is side]) for side in (True, False))
    if not fitted.bound.size or not held_out.bound.size:
        raise InputError(f"{len(known)} predicted rows are too few to fit on one half and judge on the other")
    best = (np.inf, 1.0, 0.0)
    for launches in np.arange(0.0, MAX_LAUNCHES + STEP / 2, STEP).tolist():
        factor = _least_factor(fitted, launches, latency_us, coverage)
        best = min(best, (fitted.width(factor, launches, latency_us), factor, round(launches, 1)))
    width, factor, launches = best
    return IntervalFit(
        factor=factor,
        launches=launches,
        fitted_rows=int(fitted.bound.size),
        fitted_coverage=fitted.coverage(factor, launches, latency_us),
        held_out_rows=int(held_out.bound.size),
        held_out_coverage=held_out.coverage(factor, launches, latency_us),
        held_out_unweighted=float(held_out.inside(factor, launches, latency_us).mean()),
        width=float(np.exp(width)),
    )


def interval_toml(fit: IntervalFit, *, device: str, rows: int, date: str) -> str:
    """`data/roofline.toml`: the two numbers and where they come from."""
    return f"""\
# How far above the speed of light real programs run. A kernel's upper end is
# `time * factor + launches * launch latency of the device`.
#
# Written by `meshcast validate intervals DIR --on {device} --write FILE` on {date}, from {rows} measured programs.
# Fitted on {fit.fitted_rows} of them: {fit.fitted_coverage:.1%} lie inside, groups weighing the same.
# Judged on the other {fit.held_out_rows}: {fit.held_out_coverage:.1%}, or {fit.held_out_unweighted:.1%} of plain rows.
# Geometric mean of high / low: {fit.width:.1f}.
schema = "meshcast.roofline-interval/1"

[interval]
factor = {fit.factor:.1f}
launches = {fit.launches:.1f}
"""


def _half(rows: Sequence[ProgramRow]) -> Half:
    sizes = Counter(row.group for row in rows)
    classes = [row.group if sizes[row.group] >= MIN_GROUP else "" for row in rows]
    members = Counter(classes)
    weight = [1 / (members[name] * len(members)) for name in classes]
    columns = [(row.measured, row.predicted, row.kernels) for row in rows]
    array = np.array(columns, dtype=np.float64).reshape(-1, 3)
    return Half(measured=array[:, 0], bound=array[:, 1], kernels=array[:, 2], weight=np.array(weight))


def _least_factor(half: Half, launches: float, latency_us: float, coverage: float) -> float:
    """The least factor, in steps and at least 1, with `coverage` of the weight at or below the upper end."""
    needed = (half.measured - launches * latency_us * half.kernels) / half.bound
    order = np.argsort(needed)
    position = int(np.searchsorted(np.cumsum(half.weight[order]), coverage - 1e-9))
    quantile = float(needed[order[min(position, needed.size - 1)]])
    return round(max(1.0, float(np.ceil(quantile / STEP - 1e-9)) * STEP), 1)
