from __future__ import annotations

import pytest

from meshcast.evidence.validate.measures import measure, measure_groups


def test_measures_by_hand() -> None:
    # Half and double of the measured time: both off by a factor of two, in opposite directions.
    found = measure([1.0, 4.0], [2.0, 2.0], failed=3)
    assert (found.rows, found.failed) == (5, 3)
    assert found.geomean_error == pytest.approx(1.0)
    assert found.mape == pytest.approx((0.5 + 1.0) / 2)
    assert found.bias == pytest.approx(0.0)
    assert found.spearman is None  # all measured times are equal
    assert found.median_ratio == pytest.approx((2.0 + 0.5) / 2)


def test_bias_is_the_geometric_mean_of_the_ratio() -> None:
    found = measure([1.0, 1.0], [2.0, 8.0])
    assert found.bias == pytest.approx(1 / 4 - 1)
    assert found.geomean_error == pytest.approx(3.0)


def test_no_rows_have_no_measures() -> None:
    found = measure([], [], failed=2)
    assert (found.rows, found.failed) == (2, 2)
    assert {found.geomean_error, found.mape, found.bias, found.spearman, found.median_ratio} == {None}


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 predictions for 2"):
        measure([1.0], [1.0, 2.0])


def test_groups_keep_their_order_and_failures() -> None:
    rows = [("b", (1.0, 1.0)), ("a", None), ("b", (1.0, 2.0))]
    everything, groups = measure_groups(rows, lambda row: row[0], lambda row: row[1])
    assert list(groups) == ["b", "a"]
    assert (everything.rows, everything.failed) == (3, 1)
    assert (groups["a"].rows, groups["a"].failed, groups["a"].mape) == (1, 1, None)
    assert groups["b"].mape == pytest.approx(0.25)
