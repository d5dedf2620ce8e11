"""Factors by which intervals have to be wider."""

from __future__ import annotations

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.evidence.validate.widening import widening


def row(measured: float | None) -> ProgramRow:
    return ProgramRow(id="x", group="g", measured=measured, predicted=1.0, low=0.8, high=1.25)


def test_by_hand() -> None:
    # 0 to 20: of 21 rows one may stay on either side, so the second lowest and the second highest are the ends.
    rows = [row(0.2), row(0.4), *[row(1.0)] * 17, row(2.5), row(5.0)]
    assert widening(rows) == pytest.approx((2.0, 2.0))
    low, high = widening(rows)
    assert sum(0.8 / low <= (r.measured or 0) <= 1.25 * high for r in rows) == 19


def test_never_narrower_and_failed_rows_do_not_count() -> None:
    assert widening([row(1.0), row(None)]) == (1.0, 1.0)
    with pytest.raises(InputError, match="interval"):
        widening([row(None)])
