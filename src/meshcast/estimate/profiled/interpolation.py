"""Interpolation between measured kernels: a local Gaussian process on how far each is from the reference model.

With `y = log(measured / reference)` at places `x` of one family, and the covariance `s^2 exp(-|x - x'| / l)` plus the
variance `n` of a single measurement, a kernel's `y` is the conditional mean given its `NEIGHBOURS` nearest measured ones
(Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, equations 2.25 and 2.26; neighbours as in
Vecchia's approximation). Far from everything measured it falls back to the reference, or to the family's median ratio.

Rows come from two kinds of programs: those that users run (`common`) and probes, which also try what nobody runs. `l`, `n`, the
mean, and how much less a probe's row says (`n` times a factor) are those with the least absolute error on common rows
over folds of whole programs, on all rows where there are few common ones. Rows that other programs do not foresee count less
(`outliers_doubted`). The interval is the conditional deviation times
the quantile of |error| / deviation over the same folds (after Vovk, "Cross-conformal predictors", 2015; the settings
are chosen on those folds too), and never less than a normal distribution's where few rows judge it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from meshcast.estimate.estimator import Array
from meshcast.estimate.profiled.distances import (
    apart,
    doubled_products,
    nearest_rows,
    pieces,
    rows_near,
    squares,
    squares_apart,
)

NEIGHBOURS = 48
# Queries whose distances to a family are worked on together: some hundred KB, which stay in a core's cache, and in pages that
# the process has already. Fresh pages for all queries at once would take as long as the arithmetic.
AT_ONCE = 8
# Of the rows that were left out, by their intervals. A program of several kernels adds them up and is covered more often where
# its kernels are the compiler's, and less often where they are modelled: of public libraries' programs 85 to 95 % are wanted.
COVERED = 0.9
NORMAL_COVERED = 1.645  # deviations of a normal distribution to each side that hold as many
LEAST_SCALE = 0.05  # of deviations, where a family's rows are so regular that rounding would make outliers of some
FOLDS = 5
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
NOISES = (0.002, 0.01, 0.03)
FACTORS = (1.0, 4.0, 16.0, 100.0)  # a probe's variance over a common row's
FEWEST = 12  # rows below which nothing is fitted: the defaults stay
FEWEST_COMMON = 1  # common rows that are judged by alone: what they say about the reference outweighs probes
ENOUGH = 20  # judged rows whose quantile is believed
LARGEST_Y = 2.5  # beyond a factor of 12 it is another kernel, not another speed


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFamily:
    """Measured kernels that can be compared, and how."""

    places: Array  # [rows, features]
    y: Array  # log(measured / reference)
    doubt: Array  # variance of each row's measurement, in units of `noise`
    length: float = 4.0
    noise: float = 0.01
    signal: float = 0.05  # s^2
    mean: float = 0.0
    quantile: float = NORMAL_COVERED  # deviations that an interval spans to each side
    error: float | None = None  # geomean over the judged rows, each left out with its program; None where too few judge
    sizes: Array = field(init=False, repr=False)  # `|x|^2` of every place

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", squares(self.places))

    def __len__(self) -> int:
        return len(self.y)


def checked(family: KernelFamily) -> KernelFamily:
    """The family, whose rows are as many places of finite features as there are ratios and variances.

    Raises:
        ValueError: They are not, or a setting is no positive number.
    """
    rows = len(family.y)
    if not rows or family.places.ndim != 2 or not len(family.places) == rows == len(family.doubt):
        raise ValueError(f"{rows} ratios at {len(family.places)} places with {len(family.doubt)} variances")
    if not all(np.isfinite(column).all() for column in (family.places, family.y, family.doubt)):
        raise ValueError("a row with a number that is not finite")
    for name in ("length", "noise", "signal", "quantile"):
        if not 0 < float(getattr(family, name)) < np.inf:
            raise ValueError(f"{name} is {getattr(family, name)!r}")
    if (family.doubt <= 0).any() or not np.isfinite(float(family.mean)):
        raise ValueError("a variance that is not positive, or a mean that is not finite")
    return family


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """For each query: `y`, its deviation, and the distance to the nearest measured kernel."""

    y: Array
    deviation: Array
    nearest: Array


def predict(family: KernelFamily, queries: Array) -> Answers:
    """The conditional mean and deviation at some places."""
    asked = _Asked(queries)
    own = squares(queries)
    answered = []
    for some in pieces(len(queries), AT_ONCE):
        product = doubled_products(queries[some], family.places)
        new = asked.new(product)
        if new:
            product = product if len(new) == len(product) else product[new]
            answered.append(_conditional(family, squares_apart(own[some][new, None] + family.sizes, product)))
    y, deviation, nearest = (np.concatenate(column)[asked.which] for column in zip(*answered, strict=True))
    return Answers(y=y, deviation=deviation, nearest=nearest)


class _Asked:
    """Finds queries at places that were asked about before: which answer each of them has.

    Equal rows of a matrix product may differ in their last bits by where they stand, and are two places then.
    """

    def __init__(self, queries: Array) -> None:
        self._places = [place.tobytes() for place in queries]
        self._often = Counter(self._places)
        self._known: dict[bytes, tuple[int, Array]] = {}  # answers of places that come again, with their products
        self._answers = 0
        self.which: list[int] = []  # for each query that was seen

    def new(self, products: Array) -> list[int]:
        """Those of the next queries that have to be answered, by their rows of products."""
        found = []
        for row, product in enumerate(products):
            place = self._places[len(self.which)]
            known = self._known.get(place)
            if known is not None and np.array_equal(product, known[1]):
                self.which.append(known[0])
                continue
            if known is None and self._often[place] > 1:
                self._known[place] = self._answers, product.copy()
            self.which.append(self._answers)
            self._answers += 1
            found.append(row)
        return found


def _conditional(family: KernelFamily, squared: Array) -> tuple[Array, Array, Array]:
    """The columns of `Answers` at places that are so far from the family's, by squares of distances."""
    count = min(NEIGHBOURS, len(family))
    numbers, distances = rows_near(squared, count)
    nearest = nearest_rows(distances, count)
    chosen, near = np.take_along_axis(numbers, nearest, axis=1), np.take_along_axis(distances, nearest, axis=1)
    places = family.places[chosen]  # [queries, count, features]
    sizes = squares(places)
    covariance = apart(sizes[:, :, None] + sizes[:, None, :], 2 * places @ np.swapaxes(places, -1, -2))
    np.divide(covariance, -family.length, out=covariance)
    np.exp(covariance, out=covariance)
    covariance *= family.signal
    covariance.reshape(len(covariance), -1)[:, :: count + 1] += family.noise * family.doubt[chosen]  # the diagonals
    towards = family.signal * np.exp(-near / family.length)
    known = family.y[chosen] - family.mean
    solved = np.linalg.solve(covariance, np.stack([known, towards], axis=-1))
    y = family.mean + np.einsum("qc,qc->q", towards, solved[:, :, 0])
    explained = np.einsum("qc,qc->q", towards, solved[:, :, 1])
    variance = np.maximum(family.signal - explained, 0.0) + family.noise
    return y, np.sqrt(variance), near.min(axis=1)


def fit(
    places: Sequence[Sequence[float]],
    y: Sequence[float],
    programs: Sequence[str],
    common: Sequence[bool],
    earlier: KernelFamily | None = None,
) -> KernelFamily:
    """A family from rows, with settings by their errors over folds of programs (`_nearest_as_good`).

    Args:
        places: The places of each row.
        y: Its log ratio.
        programs: Where it was measured: rows of one program are left out together.
        common: Whether that is a program as users run them.
        earlier: A fit of most of these rows, whose length and noise stay, and whose mean stays zero where it is.
    """
    values = np.clip(np.array(y, dtype=np.float64), -LARGEST_Y, LARGEST_Y)
    usual = np.array(common, dtype=bool)
    some = usual.sum() >= FEWEST_COMMON
    family = KernelFamily(
        places=np.array(places, dtype=np.float64),
        y=values,
        doubt=np.where(usual, 1.0, FACTORS[-1] if some else 1.0),
        mean=0.0,
        signal=max(0.01, float(np.var(values[usual] if usual.sum() >= FEWEST else values))),
    )
    folds = np.array([hashlib.sha256(program.encode()).digest()[0] % FOLDS for program in programs])
    if len(family) < FEWEST or len(set(folds)) < 2:
        return family
    judged = usual if some else np.ones(len(values), dtype=bool)
    mixed = bool(usual.any() and not usual.all())
    lengths, noises = (LENGTHS, NOISES) if earlier is None else ((earlier.length,), (earlier.noise,))
    means = (0.0, float(np.median(values))) if earlier is None or earlier.mean else (0.0,)
    trials = [
        replace(family, length=length, noise=noise, doubt=np.where(usual, 1.0, factor), mean=mean)
        for length, noise, factor, mean in itertools.product(lengths, noises, FACTORS if mixed else (1.0,), means)
    ]
    errors = [np.abs(_left_out(trial, folds, judged)[0]) for trial in trials]
    chosen = _nearest_as_good(
        trials, errors, len({name for name, judges in zip(programs, judged, strict=True) if judges})
    )
    best = outliers_doubted(trials[chosen], folds, judged)
    off, deviations = _left_out(best, folds, judged)
    quantile = float(np.quantile(np.abs(off) / deviations, COVERED))
    believed = quantile if judged.sum() >= ENOUGH else max(quantile, family.quantile)
    # Rows that the model foresees to the last digit say nothing of others: theirs is a normal distribution's span.
    return replace(best, quantile=believed or family.quantile, error=float(np.expm1(np.mean(np.abs(off)))))


def outliers_doubted(family: KernelFamily, folds: npt.NDArray[np.int64], judged: npt.NDArray[np.bool_]) -> KernelFamily:
    """The family, whose rows that the others' programs do not foresee say the less, the farther off they are.

    A row's variance is multiplied by `max(1, z^2)`, z being how many deviations it lies from what programs of other folds say
    of it (after Huber, "Robust Estimation of a Location Parameter", 1964). Deviations are scaled so that as many of the judged
    rows lie within `NORMAL_COVERED` of them as of a normal distribution. A kernel that another process interrupted, or that its
    library chose otherwise for once, would else carry its time to all its neighbours.
    """
    off, deviations = _left_out(family, folds, judged)
    scale = float(np.quantile(np.abs(off) / deviations, COVERED)) / NORMAL_COVERED
    every = np.ones(len(family), dtype=bool)
    off, deviations = _left_out(family, folds, every)
    deviations_off = np.abs(off) / (deviations * max(scale, LEAST_SCALE))
    return replace(family, doubt=family.doubt * np.maximum(1.0, deviations_off) ** 2)


def _nearest_as_good(trials: Sequence[KernelFamily], errors: Sequence[Array], programs: int) -> int:
    """The trial that carries what was measured least far and is as good as the best; of several, the one with the least error.

    As good: its errors are on average within one standard error of the best one's, pair by pair (the one-standard-error rule;
    Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 7.10). Rows of one program are alike, so that
    programs are counted. A few rows more would otherwise turn a family from neighbours alone to one trend over all sizes.
    """
    means = [float(np.mean(error)) for error in errors]
    best = int(np.argmin(means))

    def as_good(number: int) -> bool:
        behind = errors[number] - errors[best]
        return bool(np.mean(behind) <= np.std(behind) / np.sqrt(programs))

    good = [number for number in range(len(trials)) if number == best or as_good(number)]
    return min(good, key=lambda number: (trials[number].length, means[number]))


def _left_out(family: KernelFamily, folds: npt.NDArray[np.int64], judged: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """(errors, deviations) of the judged rows, each predicted without its fold."""
    errors = family.y - family.mean
    deviations = np.full(len(family), np.sqrt(family.signal + family.noise))
    for fold in range(FOLDS):
        out = folds == fold
        asked = out & judged
        if not asked.any() or out.all():
            continue
        rest = replace(family, places=family.places[~out], y=family.y[~out], doubt=family.doubt[~out])
        answers = predict(rest, family.places[asked])
        errors[asked] = family.y[asked] - answers.y
        deviations[asked] = answers.deviation
    return errors[judged], deviations[judged]
