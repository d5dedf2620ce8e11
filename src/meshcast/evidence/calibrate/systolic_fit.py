"""Lines from a systolic array's cycles to latency, fitted to measured products: `meshcast calibrate --systolic FILE.csv`.

Each regime of sizes, by the largest side, has the line of least squared relative error,

    min over slope, start >= 0 of  sum ((slope cycles + start) / t - 1)^2,

and the borders between regimes, at most two, are those powers of two that Bayes' information criterion prefers. It also says
whether thin products, of fewer rows or columns than a border, have a line of the words that they move instead. How good that
is, rows left out say first: shapes are dealt into five parts, and each is predicted by lines and borders fitted to the others.
Times that fall while the work grows have no line, nor have those that do not grow where nothing bounds them: what such a line
says of larger products nobody measured.
After Dang et al., "SCALE-Sim TPU" (arXiv 2603.22535), whose borders are 128 and 1024.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from meshcast.base import InputError, MeshcastError
from meshcast.estimate import LatencyLine, ProductLines, fastest_product, words_moved
from meshcast.evidence.validate.csv_rows import Cells, csv_rows
from meshcast.evidence.validate.ops.rows import (
    ASSUMED_TYPE,
    RowChoice,
    chosen_rows,
    device_of,
    element_type,
    measured_us,
    read_op_rows,
)
from meshcast.hardware import Device

COLUMNS = ("m", "k", "n", "time_us")
FOLDS = 5
LEAST_ROWS = 8  # of a regime: four for each of a line's two numbers
MOST_BORDERS = 2
_FALLING = -0.5  # correlation of times with the work from which on they fall, whatever noise there is
_FIX = (
    "columns m, k, n and time_us (microseconds), dtype unless it is bf16, one measured product a row; or a table of ops "
    "(docs/calibration.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """A product of m x k by k x n and its microseconds."""

    m: int
    k: int
    n: int
    time_us: float

    @property
    def fold(self) -> int:
        """The part of the shapes that it is in; a product and its transpose, which have the same cycles and words, are in one."""
        sides = f"{min(self.m, self.n)},{self.k},{max(self.m, self.n)}".encode()
        return int.from_bytes(hashlib.sha256(sides).digest()[:4]) % FOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How far predictions are from measurements: R^2 of microseconds, median and mean of relative errors."""

    rows: int
    r_squared: float
    median_error: float
    mean_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicFit:
    """Lines of all rows; how good such lines are on rows that they were not fitted to, and on their own."""

    lines: ProductLines
    left_out: Quality
    in_sample: Quality


def read_measured_products(path: Path, device: Device, grades: Sequence[str]) -> list[MeasuredProduct]:
    """Products of a table: all rows of one with their sides, or a device's rows of a table of ops, of some grades.

    Raises:
        InputError: It cannot be read, or a row is no product.
    """
    found = csv_rows(path, (), fix=_FIX, whole=True)
    if "shape" in found[0][1]:
        return _of_ops(path, device, grades)
    csv_rows(path, COLUMNS, fix=_FIX, whole=True)
    return [_product(cells, f"{path}:{line}", device) for line, cells in found]


def _product(cells: Cells, where: str, device: Device) -> MeasuredProduct:
    m, k, n, time = (cells[column] or "" for column in COLUMNS)
    try:
        made = MeasuredProduct(m=int(m), k=int(k), n=int(n), time_us=float(time))
    except ValueError as error:
        raise InputError(f"no measured product: {error}", where=where, fix=_FIX) from error
    if min(made.m, made.k, made.n) < 1 or not 0 < made.time_us < math.inf:
        raise InputError(f"sides and the time must be positive and finite: {made}", where=where, fix=_FIX)
    return _possible(made, element_type(cells.get("dtype") or ""), device, where)


def _possible(made: MeasuredProduct, dtype: str, device: Device, where: str) -> MeasuredProduct:
    """A product that its device can have computed in its time."""
    least_us = 2.0 * made.m * made.k * made.n / fastest_product(dtype, device) * 1e6
    if made.time_us < least_us:
        raise InputError(
            f"{made.m} x {made.k} x {made.n} in {made.time_us:g} us is faster than {device.name} at its peak in {dtype}, "
            f"{least_us:.4g} us",
            where=where,
            fix=f"correct the row, add a column dtype unless it is {ASSUMED_TYPE}, or --on another device",
        )
    return made


def _of_ops(path: Path, device: Device, grades: Sequence[str]) -> list[MeasuredProduct]:
    rows = chosen_rows(read_op_rows(path), RowChoice(grades=list(grades)))
    found = []
    for row in rows:
        try:
            if row.op != "matmul" or device_of(row) != device.name:
                continue
            m, k, n = (row.number(side) for side in "MKN")
        except MeshcastError:
            continue
        made = MeasuredProduct(m=m, k=k, n=n, time_us=measured_us(row, str(path)))
        found.append(_possible(made, row.element, device, row.place(str(path))))
    if not found:
        raise InputError(
            f"no product of {device.name} is in it", where=str(path), fix="name another device, or --grade"
        )
    return found


def fitted_lines(products: Sequence[MeasuredProduct], rows: int, columns: int, *, where: str) -> SystolicFit:
    """Lines through measured products on an array of rows x columns.

    Raises:
        InputError: There are too few of them to fit a line and judge it, or no line serves.
    """
    parts = [[each for each in products if each.fold == fold] for fold in range(FOLDS)]
    if len(products) < 2 * LEAST_ROWS or sum(map(bool, parts)) < 2:
        raise InputError(
            f"{len(products)} products of {len({(each.m, each.k, each.n) for each in products})} shapes are too few for a line "
            "and rows to judge it by",
            where=where,
            fix=f"measure at least {2 * LEAST_ROWS} of different shapes",
        )
    predicted, measured = [], []
    for part in filter(None, parts):
        others = [each for each in products if each.fold != part[0].fold]
        lines = _fit(others, rows, columns)
        predicted += [lines.microseconds(each.m, each.n, each.k) for each in part]
        measured += [each.time_us for each in part]
    judged = _quality(predicted, measured)
    if judged.r_squared <= 0:
        raise InputError(
            f"no line serves: on rows left out R^2 is {judged.r_squared:.3g} (their mean alone has 0), the median error "
            f"{judged.median_error:.0%}",
            where=where,
            fix="look for rows whose time does not grow with the work, or measure more shapes",
        )
    lines = _fit(products, rows, columns)
    _refuse_shrinking(products, lines, where)
    own = [lines.microseconds(each.m, each.n, each.k) for each in products]
    return SystolicFit(
        lines=lines,
        left_out=judged,
        in_sample=_quality(own, [each.time_us for each in products]),
    )


def _refuse_shrinking(products: Sequence[MeasuredProduct], lines: ProductLines, where: str) -> None:
    """Raises where a line does not grow that nothing bounds, or whose times fall while the work grows."""
    groups: dict[LatencyLine, list[tuple[float, MeasuredProduct]]] = {}
    for each in products:
        sides = each.m, each.n, each.k
        by_words = lines.thin is not None and min(each.m, each.n) < lines.thin[0]
        work = words_moved(*sides) if by_words else lines.cycles(*sides)
        groups.setdefault(lines.thin[1] if lines.thin and by_words else lines.line(*sides), []).append((work, each))
    endless = [lines.lines[-1][1], *([lines.thin[1]] if lines.thin else [])]
    for line, members in groups.items():
        if line.slope > 0:
            continue
        work, times = np.log([[work, each.time_us] for work, each in members]).T
        falling = np.ptp(work) and np.ptp(times) and np.corrcoef(work, times)[0, 1] < _FALLING
        if not falling and line not in endless:
            continue
        (_, least), (_, most) = (find(members, key=lambda member: member[0]) for find in (min, max))
        raise InputError(
            f"the times of {len(members)} of {len(products)} products do not grow with the work: {_told(least)}, {_told(most)}, "
            f"and the line of all of them is {line.start:.4g} us whatever the size",
            where=where,
            fix="look whether times and sides are in each other's rows, or measure larger products",
        )


def _told(each: MeasuredProduct) -> str:
    return f"{each.m} x {each.k} x {each.n} in {each.time_us:g} us"


def _fit(products: Sequence[MeasuredProduct], rows: int, columns: int) -> ProductLines:
    """The lines that explain most for their number of parameters, with or without one of thin products."""
    array = ProductLines(rows=rows, columns=columns, lines=())
    times = np.array([each.time_us for each in products])
    cycles = np.array([array.cycles(each.m, each.n, each.k) for each in products], dtype=np.float64)
    words = np.array([words_moved(each.m, each.n, each.k) for each in products], dtype=np.float64)
    widths = np.array([min(each.m, each.n) for each in products])
    sides = np.array([max(each.m, each.n, each.k) for each in products])
    found = _by_cycles(cycles, times, sides)
    best = (_criterion(found.missed, len(times), found.parameters), replace(array, lines=found.lines))
    for below in _powers(int(widths.max())):
        thin = widths < below
        if min(thin.sum(), (~thin).sum()) < LEAST_ROWS:
            continue
        found, line = _by_cycles(cycles[~thin], times[~thin], sides[~thin]), _line(words[thin], times[thin])
        missed = found.missed + float(np.sum(((line.slope * words[thin] + line.start) / times[thin] - 1) ** 2))
        criterion = _criterion(missed, len(times), found.parameters + 3)
        best = min(best, (criterion, replace(array, lines=found.lines, thin=(below, line))), key=lambda each: each[0])
    return best[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Regimes:
    """Lines of regimes with the sum of their squared relative errors, and how many numbers they have."""

    lines: tuple[tuple[float, LatencyLine], ...]
    missed: float
    parameters: int


def _powers(most: int) -> list[int]:
    """Powers of two up to the first beyond a number."""
    return [2**power for power in range(1, most.bit_length() + 1)]


def _criterion(missed: float, count: int, parameters: int) -> float:
    """Bayes' information criterion."""
    return count * math.log(max(missed / count, 1e-12)) + parameters * math.log(count)


def _by_cycles(
    cycles: npt.NDArray[np.float64], times: npt.NDArray[np.float64], sides: npt.NDArray[np.int64]
) -> _Regimes:
    """The regimes of sizes that explain most for their number of parameters."""
    best: tuple[float, _Regimes] = (math.inf, _Regimes(lines=(), missed=math.inf, parameters=0))
    for count in range(MOST_BORDERS + 1):
        for chosen in itertools.combinations(_powers(int(sides.max())), count):
            bounds = [*map(float, chosen), math.inf]
            regime = np.searchsorted(np.array(bounds), sides, side="right")
            if np.bincount(regime, minlength=len(bounds)).min() < min(LEAST_ROWS, len(times)):
                continue
            lines = [_line(cycles[regime == each], times[regime == each]) for each in range(len(bounds))]
            guessed = np.array([lines[each].at(x) for each, x in zip(regime, cycles, strict=True)])
            missed, parameters = float(np.sum((guessed / times - 1) ** 2)), 2 * len(bounds) + count
            made = _Regimes(lines=tuple(zip(bounds, lines, strict=True)), missed=missed, parameters=parameters)
            best = min(best, (_criterion(missed, len(times), parameters), made), key=lambda each: each[0])
    return best[1]


def _line(cycles: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> LatencyLine:
    """The line of least squared relative error; where one of its numbers would be negative, the best without it."""
    steep, flat = cycles / times, 1 / times
    (slope, start), *_ = np.linalg.lstsq(np.stack([steep, flat], axis=1), np.ones(len(times)), rcond=None)
    if start < 0:
        slope, start = steep.sum() / (steep**2).sum(), 0.0
    elif slope < 0:
        slope, start = 0.0, flat.sum() / (flat**2).sum()
    return LatencyLine(slope=float(slope), start=float(start))


def _quality(predicted: Sequence[float], measured: Sequence[float]) -> Quality:
    errors = [abs(guess / time - 1) for guess, time in zip(predicted, measured, strict=True)]
    mean = sum(measured) / len(measured)
    spread = sum((time - mean) ** 2 for time in measured)
    missed = sum((guess - time) ** 2 for guess, time in zip(predicted, measured, strict=True))
    return Quality(
        rows=len(errors),
        r_squared=1 - missed / spread if spread else 0.0,
        median_error=median(errors),
        mean_error=sum(errors) / len(errors),
    )
