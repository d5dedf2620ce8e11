"""Rank correlations: does one list of figures put things in the same order as another?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def spearman(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float | None:
    """Spearman's rank correlation, `cov(r1, r2) / (std(r1) std(r2))` of the mean ranks; None if a side is constant."""
    r1, r2 = mean_ranks(first), mean_ranks(second)
    r1, r2 = r1 - r1.mean(), r2 - r2.mean()
    scale = float(np.sqrt((r1 @ r1) * (r2 @ r2)))
    # Rounding may carry a perfect correlation just past 1.
    return float(np.clip((r1 @ r2) / scale, -1.0, 1.0)) if scale > 0 else None


def mean_ranks(values: Sequence[float] | Floats) -> Floats:
    """Ranks from 1 up; equal values share the mean of the ranks they take."""
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Floats = last - (counts - 1) / 2
    return shared[inverse]


def kendall(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float | None:
    """Kendall's tau-b, `(C - D) / sqrt((n0 - n1) (n0 - n2))`; None if a side is constant. After Kendall 1945.

    Of all `n0` pairs, C are in the same order on both sides and D in opposite orders; n1 pairs are tied on the first
    side and n2 on the second. Every pair is looked at: meant for thousands of figures, not for millions.
    """
    upper = np.triu_indices(len(first), k=1)
    signs = [np.sign(np.subtract.outer(side, side))[upper] for side in map(_column, (first, second))]
    scale = float(np.sqrt(np.abs(signs[0]).sum() * np.abs(signs[1]).sum()))
    return float((signs[0] @ signs[1]) / scale) if scale > 0 else None


def _column(values: Sequence[float] | Floats) -> Floats:
    return np.asarray(values, dtype=np.float64)
