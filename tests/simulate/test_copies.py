"""Copies beside compute: by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshcast.simulate.copies import Copies


def queue(count: int) -> tuple[Copies, list[float], list[float]]:
    starts, ends = [0.0] * count, [0.0] * count
    return Copies(starts, ends), starts, ends


def test_a_copy_that_fits_beside_a_kernel_costs_nothing() -> None:
    copies, starts, ends = queue(1)
    copies.issue(0, 2.0, at=0.0, next_step=False)
    copies.run_beside(0.0, 10.0, free=5.0)  # the kernel needs the memory half of its time
    assert copies.waited_for((0,), 10.0) == 10.0
    assert (starts[0], ends[0]) == (0.0, 4.0)
    assert copies.unused == 3.0


def test_what_is_left_of_a_copy_is_waited_for_at_full_rate() -> None:
    copies, _, ends = queue(1)
    copies.issue(0, 8.0, at=0.0, next_step=False)
    copies.run_beside(0.0, 10.0, free=5.0)
    assert copies.waited_for((0,), 10.0) == 13.0
    assert ends[0] == 13.0


def test_copies_take_turns_in_the_order_of_their_start() -> None:
    copies, starts, ends = queue(3)
    for index, seconds in enumerate((1.0, 2.0, 3.0)):
        copies.issue(index, seconds, at=0.0, next_step=False)
    assert copies.waited_for((1,), 0.0) == 3.0  # the first comes before it, the third does not
    assert (starts[1], ends[1]) == (1.0, 3.0)
    assert copies.finished(3.0) == 6.0


def test_the_next_steps_copy_takes_what_nobody_took() -> None:
    copies, _, _ = queue(1)
    copies.issue(0, 6.0, at=0.0, next_step=True)
    assert copies.waited_for((0,), 0.0) == 0.0  # the step before has made it
    copies.run_beside(0.0, 10.0, free=4.0)
    assert copies.finished(10.0) == 12.0


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=8),
)
def test_memory_is_never_used_for_longer_than_time_passes(
    lengths: list[float], kernels: list[tuple[float, float]]
) -> None:
    copies, _, _ = queue(len(lengths))
    for index, seconds in enumerate(lengths):
        copies.issue(index, seconds, at=0.0, next_step=False)
    now = used = 0.0
    for seconds, share in kernels:
        copies.run_beside(now, now + seconds, free=seconds * (1 - share))
        now += seconds
        used += seconds * share
    end = copies.finished(now)
    assert end >= used + sum(lengths) - 1e-9
    assert end <= sum(seconds for seconds, _ in kernels) + sum(lengths) + 1e-9
