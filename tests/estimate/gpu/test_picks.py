"""Rows picked by index, and what hot ones cost: counts that can be added up by hand, and measured scatters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.picks import Picks
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Indexed, Tensor

H200 = load_device("h200")


def scatter(rows: int, dim: int, count: int, skew: float, *, unique: bool = False, dtype: str = "f32") -> float:
    """Seconds on an H200."""
    table = Tensor(shape=(rows, dim), dtype=dtype)
    shape = Indexed(table=table, slice_shape=(1, dim), count=count, unique=unique, skew=skew)
    moved = count * dim * 4 // 32  # a pooled update is spread to 32 rows; fewer bytes than any bound
    kernel = Kernel(
        name="scatter", kind=KernelKind.SCATTER, dtype=dtype, read_bytes=moved, written_bytes=moved, geometry=shape
    )
    return float(GpuAnalytical().estimate([kernel], H200).time[0])


def test_a_zipf_law_over_three_rows_by_hand() -> None:
    # 1 + 1/2 + 1/3 = 11/6: of 110 picks the hottest row has 60, the others 30 and 20.
    picks = Picks(3, 110, 1.0)
    assert picks.hottest == pytest.approx(60)
    assert picks.different == pytest.approx(3, rel=1e-6)
    assert picks.squares == pytest.approx(60**2 + 30**2 + 20**2 + 110)


def test_uniform_picks_by_hand() -> None:
    picks = Picks(1000, 500, 0.0)
    assert picks.hottest == 0.5
    assert picks.different == pytest.approx(1000 * (1 - math.exp(-0.5)))


@pytest.mark.parametrize(("rows", "hottest", "different"), [(10_000, 8269, 6923), (1_000_000, 6209, 21574)])
def test_expected_counts_are_those_of_drawn_indices(rows: int, hottest: int, different: int) -> None:
    picks = Picks(rows, 65536, 1.05)  # drawn once for the measured scatters
    assert picks.hottest == pytest.approx(hottest, rel=0.03)
    assert picks.different == pytest.approx(different, rel=0.03)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 10**7),
    count=st.integers(1, 10**6),
    skew=st.sampled_from([0.0, 0.5, 1.0, 1.2, 3.0]),
    room=st.floats(1, 1e6),
)
def test_misses_are_none_where_all_fit_and_never_more_than_the_picks(
    rows: int, count: int, skew: float, room: float
) -> None:
    picks = Picks(rows, count, skew)
    missed = picks.misses(room)
    assert 0 <= missed <= count * (1 + 1e-9)
    assert picks.different <= min(rows, count) * (1 + 1e-9)
    assert picks.misses(2 * room) <= missed * (1 + 1e-9)
    if picks.different <= room:
        assert missed == 0


def test_updates_of_one_row_take_turns() -> None:
    # All 65,536 updates on one row of four lines: two turns of 2.3 ns each, as measured (308 us).
    assert scatter(1, 128, 65536, 0.0) == pytest.approx(308e-6, rel=0.1)
    # Spread evenly they are limited by the rate of atomics (11.1 us), skewed by the hottest row (43.5 us).
    assert scatter(10_000, 128, 65536, 0.0) == pytest.approx(11.1e-6, rel=0.15)
    assert scatter(10_000, 128, 65536, 1.05) == pytest.approx(43.5e-6, rel=0.15)


def test_unique_indices_never_collide() -> None:
    assert scatter(10_000, 128, 8192, 2.0, unique=True) == scatter(10_000, 128, 8192, 0.0, unique=True)
    assert scatter(10_000, 128, 8192, 2.0) > 5 * scatter(10_000, 128, 8192, 2.0, unique=True)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(2, 10**6), count=st.integers(1, 10**5), skew=st.floats(0.1, 3))
def test_skew_never_makes_updates_cheaper(rows: int, count: int, skew: float) -> None:
    assert scatter(rows, 16, count, skew) >= scatter(rows, 16, count, skew / 2) * (1 - 1e-6)
