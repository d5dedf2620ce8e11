"""Steps are the repetitions of a trace, whatever repeats inside of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InputError, UsageError
from meshcast.evidence.profiler import MeasuredKernel, MeasuredTrace, find_steps
from meshcast.evidence.profiler.repetition import repetitions
from tests.evidence.profiler.traces import trace

STEP = ["embed", *["norm", "dot", "act"] * 6, "loss", "update"]


def test_steps_are_told_from_layers_and_warm_up() -> None:
    search = find_steps(trace(["init", "init", *STEP * 4]), expected=len(STEP))
    assert [step.launches for step in search.steps] == [len(STEP)] * 4
    assert search.method == "repeated kernels"
    assert search.counted == (1, 2)  # neither the first, nor the last, which nothing follows
    assert search.step.seconds == pytest.approx(len(STEP))


def test_a_single_step_with_layers_is_one_step() -> None:
    search = find_steps(trace(STEP), expected=len(STEP))
    assert len(search.steps) == 1
    assert search.step.launches == len(STEP)


def test_two_parts_that_have_nothing_in_common_are_no_steps() -> None:
    """A kernel that runs twice, in a trace of one step."""
    search = find_steps(trace(["embed", "mark", "a", "b", "mark", "c", "d", "e", "f", "g", "h"]), expected=11)
    assert [step.launches for step in search.steps] == [11]


def test_a_trace_that_begins_and_ends_inside_a_step() -> None:
    search = find_steps(trace([*STEP[-2:], *STEP * 3, *STEP[:7]]), expected=len(STEP))
    whole = [step for step in search.steps if step.whole]
    assert len(whole) >= 2
    assert {step.launches for step in whole} == {len(STEP)}


def test_the_wait_for_the_next_step_belongs_to_a_step() -> None:
    kernels = [
        MeasuredKernel(name=name, start=100.0 * step + i, duration=0.5)
        for step in range(4)
        for i, name in enumerate(STEP)
    ]
    search = find_steps(replace(trace([]), kernels=tuple(kernels)), expected=len(STEP))
    assert search.step.seconds == pytest.approx(100.0)
    assert search.steps[-1].seconds == pytest.approx(len(STEP) - 0.5)


def test_the_median_step_is_taken() -> None:
    starts = [0.0, 900.0, 1000.0, 1300.0, 1500.0]  # steps of 900, 100, 300 and 200, and one that nothing follows
    kernels = [MeasuredKernel(name=n, start=s + i, duration=0.5) for s in starts for i, n in enumerate(STEP)]
    search = find_steps(replace(trace([]), kernels=tuple(kernels)), expected=len(STEP))
    assert search.step.seconds == pytest.approx(200.0)


def test_the_hosts_step_numbers_count() -> None:
    kernels = tuple(
        MeasuredKernel(name="k", start=float(i), duration=0.5, step=None if i < 2 else i // 3) for i in range(12)
    )
    search = find_steps(replace(trace([]), kernels=kernels), expected=3)
    assert search.method == "the host's step numbers"
    assert [step.launches for step in search.steps] == [1, 3, 3, 3]


def test_the_number_of_steps_can_be_told() -> None:
    search = find_steps(trace(STEP * 3), expected=1, count=3)
    assert [step.launches for step in search.steps] == [len(STEP)] * 3
    with pytest.raises(InputError, match="repeats 5 times"):
        find_steps(trace(STEP * 3), expected=1, count=5)


def test_steps_without_a_kernel_of_their_own_are_found_by_shifting() -> None:
    """Names without launch grids: every kernel runs several times a step."""
    step = ["add", "dot", "dot", "add", "copy", "dot", "copy", "add"]
    for search in (
        find_steps(trace(["copy", *step * 5]), expected=len(step)),
        find_steps(trace(step * 5), expected=1, count=5),
    ):
        assert [found.launches for found in search.steps] == [len(step)] * 5


def test_a_summary_must_be_told_its_steps() -> None:
    kernels = (
        MeasuredKernel(name="gemm", start=0.0, duration=6.0, count=12),
        MeasuredKernel(name="init", start=0.0, duration=1.0, count=1),
    )
    summary = MeasuredTrace(source="sum.csv", format="nsys-summary", device="GPU", kernels=kernels)
    with pytest.raises(UsageError, match="how many steps"):
        find_steps(summary, expected=4)
    search = find_steps(summary, expected=4, count=4)
    assert search.step.seconds == pytest.approx(7 / 4)
    assert [kernel.duration for kernel in search.step.kernels] == pytest.approx([0.5, 0.5, 0.5, 0.25])


def test_kernels_that_take_no_time_are_no_step() -> None:
    with pytest.raises(InputError, match="takes any time"):
        find_steps(trace(STEP, seconds=0.0), expected=4)


@settings(deadline=None, max_examples=40)
@given(
    head=st.integers(1, 4),
    layers=st.integers(1, 8),
    body=st.integers(1, 5),
    tail=st.integers(1, 4),
    steps=st.integers(2, 6),
    off=st.sampled_from([0.1, 0.3, 1.0, 3.0, 10.0]),
)
def test_every_repeated_step_is_found(head: int, layers: int, body: int, tail: int, steps: int, off: float) -> None:
    """However many launches were predicted."""
    step = [f"h{i}" for i in range(head)] + [f"b{i}" for i in range(body)] * layers + [f"t{i}" for i in range(tail)]
    search = find_steps(trace(step * steps), expected=max(1, round(off * len(step))))
    assert [found.launches for found in search.steps] == [len(step)] * steps


@pytest.mark.parametrize("expected", [len(STEP) // 5, len(STEP), 3 * len(STEP), 9 * len(STEP)])
def test_a_step_that_is_twice_the_same_is_two_steps(expected: int) -> None:
    """However many launches were predicted."""
    search = find_steps(trace(STEP * 4), expected=expected)
    assert [step.launches for step in search.steps] == [len(STEP)] * 4


def test_two_kernels_four_times_are_four_steps() -> None:
    search = find_steps(trace(["gemm", "add"] * 4, seconds=2e-4), expected=12)
    assert [step.seconds for step in search.steps] == pytest.approx([4e-4] * 4)


def test_a_kernel_of_every_second_step_does_not_join_them() -> None:
    search = find_steps(trace([*STEP, *STEP, "log", *STEP, *STEP, "log"]), expected=2 * len(STEP))
    assert len(search.steps) == 4


def test_a_step_of_layers_alone_is_as_many_as_were_predicted() -> None:
    layer = ["norm", "dot", "dot", "act"]
    assert repetitions(layer * 6) == 6
    search = find_steps(trace(layer * 24), expected=24, repeats=repetitions(layer * 6))
    assert [step.launches for step in search.steps] == [24] * 4
    # A prediction with more in it than that is no reason to join steps that end with something of their own.
    search = find_steps(trace([*layer, "loss"] * 6), expected=5, repeats=repetitions(layer * 6))
    assert [step.launches for step in search.steps] == [5] * 6


def test_steps_with_layers_are_no_repetition() -> None:
    assert repetitions(STEP) == 1
    assert repetitions(["embed", *["dot", "act"] * 4]) == 1
    assert repetitions([]) == 1
    assert repetitions(["dot"]) == 1


def test_warm_up_and_a_step_that_the_trace_ends_in() -> None:
    search = find_steps(trace(["init", *STEP * 3, *STEP[:5]]), expected=len(STEP))
    assert [step.launches for step in search.steps] == [len(STEP)] * 3


def test_microbatches_are_no_steps() -> None:
    """Even where what comes once a step is little beside them."""
    step = [*[f"kernel {number}" for number in range(60)] * 4, "update", "update"]
    expected, repeats = len(step), repetitions(step)
    assert repeats == 4
    for names in (step * 3, [*step[100:], *step * 3]):
        search = find_steps(trace(names), expected=expected, repeats=repeats)
        whole = [found.launches for found in search.steps if found.whole]
        assert whole == [len(step)] * len(whole)
        assert len(whole) >= 2
    search = find_steps(trace(step), expected=expected, repeats=repeats)
    assert [found.launches for found in search.steps] == [len(step)]
