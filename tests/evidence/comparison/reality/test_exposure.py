"""A step's time shared out: by hand, and that the parts always add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.evidence.comparison.reality.exposure import COPYING, SENDING, Interval, shared_out
from meshcast.evidence.profiler.classes import IDLE


def test_compute_comes_before_copies_before_communication() -> None:
    parts = shared_out(
        [
            Interval(start=10.0, end=14.0, kind="matmul"),
            Interval(start=13.0, end=17.0, kind="copy", tier=COPYING),
            Interval(start=11.0, end=19.0, kind="collective: all-reduce", tier=SENDING),
        ],
        10.0,
        10.0,
    )
    assert parts == pytest.approx({"matmul": 4.0, "copy": 3.0, "collective: all-reduce": 2.0, IDLE: 1.0})


def test_kernels_side_by_side_have_equal_parts() -> None:
    parts = shared_out(
        [Interval(start=0.0, end=4.0, kind="matmul"), Interval(start=2.0, end=4.0, kind="reduction")], 0.0, 4.0
    )
    assert parts == pytest.approx({"matmul": 3.0, "reduction": 1.0, IDLE: 0.0})


def test_what_lies_outside_of_the_step_is_not_counted() -> None:
    parts = shared_out(
        [Interval(start=-5.0, end=1.0, kind="copy"), Interval(start=3.0, end=9.0, kind="copy")], 0.0, 4.0
    )
    assert parts == pytest.approx({"copy": 2.0, IDLE: 2.0})


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.floats(0, 9), st.floats(0, 5), st.sampled_from(["a", "b", "c"]), st.integers(0, 2)), max_size=8
    )
)
def test_the_parts_add_up(drawn: list[tuple[float, float, str, int]]) -> None:
    intervals = [Interval(start=s, end=s + d, kind=k, tier=t) for s, d, k, t in drawn]
    parts = shared_out(intervals, 0.0, 10.0)
    assert sum(parts.values()) == pytest.approx(10.0)
    assert min(parts.values()) >= 0.0
