"""Cycles of layers on a systolic array that is never short of data, in closed form.

A product of M x K by K x N is cut into folds of the array's size along the two dimensions that lie in it; the third, T,
is streamed through:

| dataflow | along rows | along columns | streamed T | cycles of a fold |
|---|---|---|---|---|
| `ws` | K | N | M | 2R + C + T - 2 |
| `is` | K | M | N | 2R + C + T - 2 |
| `os` | M | N | K | R + C + T - 2 |

`compute_cycles = ceil(rows/R) * ceil(columns/C) * fold - 1`: R cycles to load what stays in the cells (`ws`, `is`), T to
stream, R - 1 and C - 1 for the skew to fill and drain; folds do not overlap, partly filled ones take as long, and the last
cycle is number `count - 1`, as SCALE-Sim counts from 0. After Samajdar et al., "SCALE-Sim: Systolic CNN Accelerator
Simulator" (arXiv 1811.02883), whose v3.0.0 package gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.estimate.systolic.array import SystolicArray
from meshcast.estimate.systolic.layer import Integers

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """How layers lie in the array, one entry a layer."""

    along_rows: Integers  # sizes of what lies along the array's rows, columns, and of what streams through
    along_columns: Integers
    streamed: Integers
    row_folds: Integers
    column_folds: Integers
    fold_cycles: Integers


def folds(m: Integers, n: Integers, k: Integers, array: SystolicArray) -> Folds:
    """The folds of products of M x K by K x N."""
    along_rows, along_columns, streamed = {"ws": (k, n, m), "is": (k, m, n), "os": (m, n, k)}[array.dataflow]
    loading = 0 if array.dataflow == "os" else array.rows
    return Folds(
        along_rows=along_rows,
        along_columns=along_columns,
        streamed=streamed,
        row_folds=-(-along_rows // array.rows),
        column_folds=-(-along_columns // array.columns),
        fold_cycles=loading + array.rows + array.columns + streamed - 2,
    )


def compute_cycles(m: Integers, n: Integers, k: Integers, array: SystolicArray) -> Integers:
    """Cycles without stalls; see the module for the equation."""
    lie = folds(m, n, k, array)
    return lie.row_folds * lie.column_folds * lie.fold_cycles - 1


def mapping_efficiency(m: Integers, n: Integers, k: Integers, array: SystolicArray) -> Floats:
    """Cells that folds use, as a share of the array, averaged over folds."""
    lie = folds(m, n, k, array)
    used = lie.along_rows * lie.along_columns
    return np.asarray(used / (lie.row_folds * lie.column_folds * array.cells), dtype=np.float64)


def compute_utilisation(m: Integers, n: Integers, k: Integers, array: SystolicArray) -> Floats:
    """SCALE-Sim's "Compute Util": multiply-adds over cells and cycles, averaged over folds.

    For `ws` and `is` it counts C - 1 cycles a fold more than the fold takes.
    """
    lie = folds(m, n, k, array)
    counted = lie.fold_cycles + (0 if array.dataflow == "os" else array.columns - 1)
    return np.asarray(mapping_efficiency(m, n, k, array) * lie.streamed / counted, dtype=np.float64)


def utilisation(m: Integers, n: Integers, k: Integers, array: SystolicArray, total_cycles: Integers) -> Floats:
    """SCALE-Sim's "Overall Util": multiply-adds over cells and all cycles, stalls among them.

    A single multiply-add on a single cell ends in cycle 0, and is given the cycle that it takes.
    """
    return np.asarray(m * n * k / (np.maximum(total_cycles, 1) * array.cells), dtype=np.float64)
