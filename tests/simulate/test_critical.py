"""The critical path by hand, and that it adds up to the step whatever runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.simulate.contention import Taken
from meshcast.simulate.critical import Segment, shortened
from meshcast.simulate.scheduling import Scheduling
from tests.simulate.schedules import exchange, kernel, loop, run, schedule
from tests.simulate.test_channels import SETTINGS, STEPS, Graph, build


def path(segments: tuple[Segment, ...]) -> list[tuple[str, float, int]]:
    return [(segment.kind, segment.seconds, segment.count) for segment in segments]


def test_kernels_and_the_exchange_between_them() -> None:
    """The second kernel hides behind the exchange, which sets the time."""
    body = schedule([kernel([0], [1], 2), exchange([1], [2], 5), kernel([0], [3], 4), kernel([2, 3], [4], 1)])
    assert path(run(body).critical) == [("compute", 2, 1), ("communication", 5, 1), ("compute", 1, 1)]


def test_of_two_channels_the_longer_one() -> None:
    body = schedule([exchange([0], [1], 4, over="a"), exchange([0], [2], 3, over="b"), kernel([1, 2], [3], 1)])
    (sent, computed) = run(body).critical
    assert (sent.what, sent.seconds) == ("all-reduce over a", 4)
    assert computed.seconds == 1


def test_a_loop_counts_its_turns() -> None:
    body = schedule([exchange([10], [11], 2), kernel([10], [12], 3), kernel([11, 12], [13], 1)], [10], [13])
    timeline = run(schedule([kernel([0], [5], 1), loop(body, 7, [5], [1]), exchange([1], [2], 2)]))
    assert path(timeline.critical) == [("compute", 1, 1), ("compute", 28, 14), ("communication", 2, 1)]
    assert timeline.critical[1].loops == ("loop x 7",)


def test_the_last_gap_is_not_on_it() -> None:
    timeline = run(schedule([kernel([0], [1], 1), kernel([1], [2], 1)]), gap=0.5)
    assert path(timeline.critical) == [("compute", 2.5, 2)]


def test_waiting_for_the_host_is_on_it() -> None:
    timeline = run(schedule([kernel([0], [1], 1)])).lasting(3)
    assert path(timeline.critical) == [("compute", 1, 1), ("idle", 2, 1)]


def test_shortening_takes_from_the_end() -> None:
    segments = [Segment(kind="compute", what="a", seconds=3), Segment(kind="communication", what="b", seconds=1)]
    assert path(shortened(segments, 1.5)) == [("compute", 2.5, 1)]
    assert shortened(segments, 4) == ()


@settings(deadline=None, max_examples=80)
@given(
    STEPS, SETTINGS, st.sampled_from([0.0, 0.3]), st.sampled_from([None, Taken(cores=0.3, memory=0.6)]), st.booleans()
)
def test_it_adds_up_to_the_step(
    graph: Graph, scheduling: Scheduling, gap: float, taken: Taken | None, shared: bool
) -> None:
    timeline = run(build(graph), gap=gap, scheduling=scheduling, taken=taken, shared=shared)
    assert sum(segment.seconds for segment in timeline.critical) == pytest.approx(timeline.duration)
    assert not any(segment.kind == "copy" for segment in timeline.critical)
