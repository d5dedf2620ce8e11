"""Interpolation between measured kernels: a local Gaussian process on how far each is from the reference model.

With `y = log(measured / reference)` at places `x` of one family, and the covariance `s^2 exp(-|x - x'| / l)` plus the variance `n`
of a single measurement, a kernel's `y` is the conditional mean given its `NEIGHBOURS` nearest measured ones (Rasmussen and
Williams, "Gaussian Processes for Machine Learning", 2006, equations 2.25 and 2.26; neighbours as in Vecchia's
approximation). `l` and `n` are those with the least absolute error over folds of whole probes; the interval is the
conditional deviation times the quantile of |error| / deviation over the same folds (split conformal prediction), so that it
covers what it says on probes that were left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshcast.estimate.estimator import Array

NEIGHBOURS = 48
COVERED = 0.9  # of the rows that were left out, by their intervals
FOLDS = 5
LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0)
NOISES = (0.001, 0.003, 0.01, 0.03)
FEWEST = 12  # rows below which nothing is fitted: the defaults stay
LARGEST_Y = 2.5  # beyond a factor of 12 it is another kernel, not another speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Measured kernels that can be compared, and how."""

    places: Array  # [rows, features]
    y: Array  # log(measured / reference)
    length: float = 4.0
    noise: float = 0.01
    signal: float = 0.05  # s^2
    mean: float = 0.0
    quantile: float = 1.645  # deviations that an interval spans to each side

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """For each query: `y`, its deviation, and the distance to the nearest measured kernel."""

    y: Array
    deviation: Array
    nearest: Array


def predict(family: Family, queries: Array) -> Answers:
    """The conditional mean and deviation at some places."""
    count = min(NEIGHBOURS, len(family))
    apart = _distances(queries, family.places)
    chosen = np.argpartition(apart, count - 1, axis=1)[:, :count]
    near = np.take_along_axis(apart, chosen, axis=1)
    places = family.places[chosen]  # [queries, count, features]
    between = np.linalg.norm(places[:, :, None, :] - places[:, None, :, :], axis=-1)
    covariance = family.signal * np.exp(-between / family.length)
    covariance[:, np.arange(count), np.arange(count)] += family.noise
    towards = family.signal * np.exp(-near / family.length)
    known = family.y[chosen] - family.mean
    solved = np.linalg.solve(covariance, np.stack([known, towards], axis=-1))
    y = family.mean + np.einsum("qc,qc->q", towards, solved[:, :, 0])
    explained = np.einsum("qc,qc->q", towards, solved[:, :, 1])
    variance = np.maximum(family.signal - explained, 0.0) + family.noise
    return Answers(y=y, deviation=np.sqrt(variance), nearest=near.min(axis=1))


def fit(places: Sequence[Sequence[float]], y: Sequence[float], probes: Sequence[str]) -> Family:
    """A family from rows: the length and noise with the least error over folds of probes.

    Args:
        places: Of each row.
        y: Its log ratio.
        probes: Where it was measured: rows of one probe are left out together.
    """
    values = np.clip(np.array(y, dtype=np.float64), -LARGEST_Y, LARGEST_Y)
    family = Family(
        places=np.array(places, dtype=np.float64),
        y=values,
        mean=float(np.median(values)),
        signal=max(0.01, float(np.var(values))),
    )
    folds = np.array([hashlib.sha256(probe.encode()).digest()[0] % FOLDS for probe in probes])
    if len(family) < FEWEST or len(set(folds)) < 2:
        return family
    best, least = family, np.inf
    for length in LENGTHS:
        for noise in NOISES:
            trial = replace(family, length=length, noise=noise)
            error = float(np.mean(np.abs(_left_out(trial, folds)[0])))
            if error < least:
                best, least = trial, error
    errors, deviations = _left_out(best, folds)
    return replace(best, quantile=float(np.quantile(np.abs(errors) / deviations, COVERED)))


def left_out_errors(family: Family, probes: Sequence[str]) -> Array:
    """Each row's error when the probes of its fold are left out."""
    folds = np.array([hashlib.sha256(probe.encode()).digest()[0] % FOLDS for probe in probes])
    return _left_out(family, folds)[0]


def _left_out(family: Family, folds: Array) -> tuple[Array, Array]:
    """(errors, deviations) of all rows, each predicted without its fold."""
    errors, deviations = family.y - family.mean, np.full(len(family), np.sqrt(family.signal + family.noise))
    for fold in range(FOLDS):
        out = folds == fold
        if not out.any() or out.all():
            continue
        answers = predict(replace(family, places=family.places[~out], y=family.y[~out]), family.places[out])
        errors[out] = family.y[out] - answers.y
        deviations[out] = answers.deviation
    return errors, deviations


def _distances(queries: Array, places: Array) -> Array:
    squares = (queries**2).sum(1)[:, None] + (places**2).sum(1)[None, :] - 2 * queries @ places.T
    return np.sqrt(np.maximum(squares, 0.0))
