"""How far predictions lie from measurements, as the validations print it; all measures are dimensionless."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from meshcast.evidence.rank_correlation import spearman

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Errors of a group of rows. With p predicted and m measured, both positive:

    - `geomean_error = exp(mean |ln(p / m)|) - 1`: 0.25 reads "off by a factor of 1.25, up or down";
    - `mape = mean |p - m| / m`;
    - `bias = exp(mean ln(p / m)) - 1`: the geometric mean of p / m, less one. Negative means too fast;
    - `spearman`: Pearson's correlation of the ranks of p and m, ties sharing the mean of their ranks;
    - `median_ratio = median m / p`.

    A measure is None where it is undefined: no row was predicted, or, for `spearman`, all ranks are equal.
    """

    rows: int
    failed: int
    geomean_error: float | None
    mape: float | None
    bias: float | None
    spearman: float | None
    median_ratio: float | None

    def to_json(self) -> dict[str, Any]:
        """The contract's keys, and the median."""
        return {
            "rows": self.rows,
            "failed": self.failed,
            "geomean_error": self.geomean_error,
            "mape": self.mape,
            "bias": self.bias,
            "spearman": self.spearman,
            "median_ratio": self.median_ratio,
        }


def measure(predicted: Sequence[float], measured: Sequence[float], *, failed: int = 0) -> Measures:
    """Errors of pairs of positive figures; `failed` rows have none, and count in `rows` and `failed` only."""
    p, m = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    if p.shape != m.shape:
        raise ValueError(f"{p.size} predictions for {m.size} measurements")
    rows = int(p.size) + failed
    if not p.size:
        return Measures(
            rows=rows, failed=failed, geomean_error=None, mape=None, bias=None, spearman=None, median_ratio=None
        )
    logs = np.log(p / m)
    return Measures(
        rows=rows,
        failed=failed,
        geomean_error=float(np.expm1(np.abs(logs).mean())),
        mape=float((np.abs(p - m) / m).mean()),
        bias=float(np.expm1(logs.mean())),
        spearman=spearman(p, m),
        median_ratio=float(np.median(m / p)),
    )


def measure_groups(
    rows: Iterable[T], group: Callable[[T], str], pair: Callable[[T], tuple[float, float] | None]
) -> tuple[Measures, dict[str, Measures]]:
    """Measures of all rows and of each group, in the order groups first appear.

    Args:
        rows: Whatever was compared.
        group: A row's group.
        pair: A row's (predicted, measured), or None when it failed.
    """
    split: dict[str, list[tuple[float, float] | None]] = {}
    for row in rows:
        split.setdefault(group(row), []).append(pair(row))
    everything = [item for items in split.values() for item in items]
    return _of_pairs(everything), {name: _of_pairs(items) for name, items in split.items()}


def _of_pairs(pairs: Sequence[tuple[float, float] | None]) -> Measures:
    known = [pair for pair in pairs if pair is not None]
    return measure([p for p, _ in known], [m for _, m in known], failed=len(pairs) - len(known))
