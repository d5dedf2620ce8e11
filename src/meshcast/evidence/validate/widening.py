"""How much wider intervals would have to be: the factors of `estimate/data/trust.toml`, from rows beside measurements."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from meshcast.base import InputError
from meshcast.evidence.validate.programs import ProgramRow

COVERAGE = 0.9


def widening(rows: Iterable[ProgramRow], coverage: float = COVERAGE) -> tuple[float, float]:
    """What lower ends are to be divided by, and upper ends multiplied by, for `coverage` of the rows to lie inside.

    With m measured in [low, high], `a = 1 / quantile(m / low, t)` and `b = quantile(m / high, 1 - t)`, both at least 1, with
    `t = (1 - coverage) / 2`: as many rows stay below as above.

    Args:
        rows: Times with their intervals; those that failed do not count.
        coverage: Share that is to lie inside.

    Raises:
        InputError: No row has an interval.
    """
    known = [(row.measured / row.low, row.measured / row.high) for row in rows if row.measured and row.low and row.high]
    if not known:
        raise InputError("no row has both a measured time and an interval")
    below, above = np.array(known, dtype=np.float64).T
    tail = (1 - coverage) / 2
    return max(1.0, 1 / float(np.quantile(below, tail))), max(1.0, float(np.quantile(above, 1 - tail)))
