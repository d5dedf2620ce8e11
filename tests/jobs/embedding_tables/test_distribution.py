"""Where indices fall: formulas worked out by hand, and draws beside expectations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshcast.base import UsageError
from meshcast.jobs import Distribution, Picked, parse_distribution
from meshcast.jobs.embedding_tables.distribution import missed_of_equal


def test_uniform_look_ups_touch_as_many_rows_as_the_coupon_collector_says() -> None:
    picked = Distribution().over(1000)
    assert picked.different(1000) == pytest.approx(1000 * (1 - math.exp(-1)))
    assert picked.hottest(5000) == pytest.approx(5)
    assert picked.misses(1000, 2000) == picked.different(1000)  # all fit: each row is read once


def test_a_full_cache_misses_first_picks_and_those_beyond_its_reach() -> None:
    picked = Distribution().over(1000)
    reach = -1000 * math.log(1 - 0.25)  # look-ups within which 250 different rows come
    first = 1000 * (1 - math.exp(-4))
    assert picked.misses(4000, 250) == pytest.approx(first + (4000 - first) * math.exp(-reach / 1000), rel=1e-6)


@pytest.mark.parametrize("skew", [0.6, 1.05, 1.2])
def test_expectations_are_what_draws_give(skew: float) -> None:
    rows, look_ups = 20_000, 50_000
    picked = parse_distribution(f"zipf:{skew}").over(rows)
    chance = np.arange(1, rows + 1) ** -skew
    drawn = np.random.default_rng(3).choice(rows, look_ups, p=chance / chance.sum())
    _, counts = np.unique(drawn, return_counts=True)
    assert picked.different(look_ups) == pytest.approx(len(counts), rel=0.03)
    assert picked.hottest(look_ups) == pytest.approx(np.sum(drawn == 0), rel=0.12)


def test_least_recently_used_rows_leave_as_the_characteristic_time_says() -> None:
    rows, look_ups, capacity = 2_000, 20_000, 300
    picked = parse_distribution("zipf:0.9").over(rows)
    chance = np.arange(1, rows + 1) ** -0.9
    held: dict[int, None] = {}
    missed = 0
    for row in np.random.default_rng(5).choice(rows, look_ups, p=chance / chance.sum()).tolist():
        missed += row not in held
        held.pop(row, None)
        held[row] = None
        if len(held) > capacity:
            held.pop(next(iter(held)))
    assert picked.misses(look_ups, capacity) == pytest.approx(missed, rel=0.03)


def test_parts_of_a_table_have_its_look_ups_between_them() -> None:
    picked = parse_distribution("zipf:1.05").over(100_000)
    part = picked.part(8)
    assert 8 * part.different(1000) == pytest.approx(picked.different(8000))
    assert float(part.shares.sum()) == pytest.approx(1)


def test_a_histogram_has_the_shares_that_it_says() -> None:
    picked = parse_distribution("histogram:0.01=0.6,0.99=0.4").over(1000)
    assert picked.rows.tolist() == [10, 990]
    assert picked.chance[0] == pytest.approx(0.06)
    assert isinstance(parse_distribution("meta-2021").over(1000), Picked)


@pytest.mark.parametrize("rows", [1, 7, 100, 999, 10**6])
@pytest.mark.parametrize("text", ["meta-2021", "histogram:0.0001=0.9,0.9999=0.1", "histogram:0.9999=0.1,0.0001=0.9"])
def test_no_row_is_picked_more_often_than_there_are_look_ups(text: str, rows: int) -> None:
    """Shares of the rows of a small table are less than one of them."""
    picked = parse_distribution(text).over(rows)
    assert float(picked.rows.sum()) == pytest.approx(rows)
    assert float(picked.shares.sum()) == pytest.approx(1)
    assert picked.rows.min() >= 1 - 1e-9
    assert picked.hottest(4096) <= 4096 * (1 + 1e-9)


@pytest.mark.parametrize(
    "text", ["zipf:x", "zipf:-1", "even", "histogram:0.5=0.5", "histogram:1", "histogram:nan=1", "uniform:3"]
)
def test_what_is_no_distribution_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_distribution(text)


@pytest.mark.parametrize("skew", [0.3, 1.05, 2.0])
@pytest.mark.parametrize("capacity", [10.0, 1000.0, 50_000.0])
def test_a_cache_is_full_after_its_characteristic_time(skew: float, capacity: float) -> None:
    picked = Distribution(kind="zipf", skew=skew).over(1_000_000)
    look_ups = 1e9
    if picked.different(look_ups) > capacity:
        reach = picked._reach(capacity, look_ups)
        assert picked.different(reach) == pytest.approx(capacity, rel=1e-9)


def test_rows_that_are_alike_are_missed_as_the_closed_form_says() -> None:
    for rows, look_ups, capacity in ((100, 50.0, 1000.0), (10_000, 1e5, 300.0), (7, 3.0, 2.0)):
        even = Distribution().over(rows).misses(look_ups, capacity)
        assert missed_of_equal(rows, look_ups, capacity) == pytest.approx(even)
