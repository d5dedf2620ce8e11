"""Factors by which intervals have to be wider."""

from __future__ import annotations

import math

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.evidence.validate.runs.left_out import asked_width, halves, left_out, share_inside
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


def of_source(source: str, error: float) -> ProgramRow:
    """A row that lies so far from its prediction, whose interval reaches 0.2 below and 0.4 above."""
    ends = math.exp(-0.2), math.exp(0.4)
    return ProgramRow(id="x", group=source, measured=math.exp(error), predicted=1.0, low=ends[0], high=ends[1])


def test_each_source_is_judged_by_the_others() -> None:
    """`b` asks for 0.5 and 2 times its intervals, so at most for 2; of `a`'s rows, which ask for 1, 1.5 and 3, two lie inside."""
    rows = [of_source("a", 0.39), of_source("a", -0.3), of_source("a", 1.2), of_source("b", -0.1), of_source("b", 0.8)]
    assert [asked_width(each) for each in rows] == pytest.approx([0.975, 1.5, 3.0, 0.5, 2.0])
    a, b = left_out(rows, kept=1.0)
    assert (a.times, a.inside, a.inside_own, a.rows) == (pytest.approx(2.0), 2, 1, 3)
    assert (b.times, b.inside, b.inside_own, b.rows) == (pytest.approx(3.0), 2, 1, 2)
    assert share_inside([a, b]) == pytest.approx(4 / 5)
    assert left_out(rows[:3]) == []
    assert share_inside([]) is None
    assert asked_width(ProgramRow(id="x", group="a", measured=1.0, predicted=None)) is None

    # Either of two sources chooses for the other: 3 times as wide of a, 2 of b.
    found = halves(rows, meant=1.0)
    assert found is not None
    assert (found.ways, found.times, found.inside) == (2, pytest.approx(2.5), pytest.approx((2 / 2 + 2 / 3) / 2))
    assert halves(rows[:3]) is None
