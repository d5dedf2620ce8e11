"""Pipelines by hand: bubbles, microbatches in flight, uneven stages, messages, reductions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import UsageError
from meshcast.simulate.pipelines import (
    SCHEDULES,
    PartCosts,
    PassWork,
    PipelineSchedule,
    StepCosts,
    Task,
    checked,
    make_schedule,
    simulate_pipeline,
    stage_memory,
)

PLAIN = ("gpipe", "1f1b")
F, B, W = PassWork.FORWARD, PassWork.BACKWARD, PassWork.WEIGHT


def equal(count: int, forward: float = 1.0, backward: float = 2.0, weight: float = 0.0, **more: float) -> StepCosts:
    part = PartCosts(forward_s=forward, backward_s=backward, weight_s=weight, **more)  # type: ignore[arg-type]
    return StepCosts(parts=(part,) * count)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 2), (4, 8), (4, 3), (8, 32)])
def test_equal_stages_idle_for_p_minus_1_of_m_plus_p_minus_1(name: str, stages: int, microbatches: int) -> None:
    schedule = checked(make_schedule(name, stages=stages, microbatches=microbatches))
    run = simulate_pipeline(schedule, equal(stages))
    assert run.duration == pytest.approx(3 * (microbatches + stages - 1))
    assert run.bubble == pytest.approx((stages - 1) / (microbatches + stages - 1))
    for stage in run.stages:
        assert stage.idle == pytest.approx(3 * (stages - 1))


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 8, 4), (4, 4, 3)])
def test_virtual_stages_divide_the_bubble(stages: int, microbatches: int, chunks: int) -> None:
    schedule = checked(make_schedule("interleaved", stages=stages, microbatches=microbatches, chunks=chunks))
    run = simulate_pipeline(schedule, equal(stages * chunks, 1 / chunks, 2 / chunks))
    assert run.bubble == pytest.approx((stages - 1) / (chunks * microbatches + stages - 1))


@pytest.mark.parametrize(
    ("stages", "microbatches", "chunks", "group", "idle"),
    [
        (4, 8, 2, 4, 3),  # two rounds of as many as there are stages
        (4, 10, 2, 5, 3),  # two rounds of five: nobody waits for them to come round, and the bubble stays
        (4, 7, 3, 7, 3),
        (3, 5, 2, 5, 2),
        (2, 1, 2, 1, 2),  # alone through four parts, of which a stage has two
        (4, 3, 2, 3, 4),  # waits one pass in each of two chunks, and two more for those behind
        (8, 4, 4, 4, 19),
    ],
)
def test_groups_of_microbatches_that_are_not_as_many_as_the_stages(
    stages: int, microbatches: int, chunks: int, group: int, idle: int
) -> None:
    """The bubble in forward and backward passes of a part: p - 1, and v (p - m) + m - 1 of fewer microbatches than stages."""
    schedule = checked(make_schedule("interleaved", stages=stages, microbatches=microbatches, chunks=chunks))
    costs = equal(stages * chunks, saved_bytes=1)
    run = simulate_pipeline(schedule, costs)
    assert run.duration == pytest.approx(3 * (chunks * microbatches + idle))
    kept = [stage_memory(schedule, stage, costs.parts).in_flight for stage in range(stages)]
    most = chunks * microbatches
    assert kept == [min(most, 2 * (stages - 1 - d) + (chunks - 1) * group + 1) for d in range(stages)]


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8)])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_zero_bubble_closed_forms(stages: int, times: tuple[float, float, float]) -> None:
    forward, backward, weight = times
    idle = {}
    for name in ("1f1b", "zb-h1", "zb-h2"):
        schedule = checked(make_schedule(name, stages=stages, microbatches=4 * stages))
        run = simulate_pipeline(schedule, equal(stages, *times))
        idle[name] = run.duration - 4 * stages * sum(times)
    assert idle["1f1b"] == pytest.approx((stages - 1) * sum(times))
    assert idle["zb-h1"] == pytest.approx((stages - 1) * (forward + backward - weight))
    assert idle["zb-h2"] == pytest.approx((stages - 1) * (forward + backward - 2 * weight), abs=1e-9)


def test_microbatches_in_flight() -> None:
    def in_flight(name: str, chunks: int = 1) -> list[int]:
        schedule = make_schedule(name, stages=4, microbatches=16, chunks=chunks)
        part = PartCosts(forward_s=1, backward_s=1, saved_bytes=10, fixed_bytes=3, working_bytes={F: 2, B: 1})
        parts = (part,) * (4 * chunks)
        memories = [stage_memory(schedule, stage, parts) for stage in range(4)]
        for memory in memories:
            assert memory.peak == 3 * chunks + 10 * memory.in_flight + 2
        return [memory.in_flight for memory in memories]

    assert in_flight("gpipe") == [16, 16, 16, 16]
    assert in_flight("1f1b") == [4, 3, 2, 1]
    # (p - 1) * 2 + (v - 1) * p + 1 on the first stage (Narayanan 2021)
    assert in_flight("interleaved", 2) == [11, 9, 7, 5]
    assert in_flight("zb-h1") == [4, 4, 4, 4]
    assert in_flight("zb-h2") == [7, 7, 7, 7]


def test_what_waits_for_the_weights_gradient_is_kept() -> None:
    schedule = PipelineSchedule(
        name="own", stages=1, microbatches=2, split=True,
        orders=((Task(F, 0), Task(B, 0), Task(F, 1), Task(B, 1), Task(W, 0), Task(W, 1)),),
    )  # fmt: skip
    part = PartCosts(forward_s=1, backward_s=1, weight_s=1, saved_bytes=10, weight_saved_bytes=4)
    memory = stage_memory(checked(schedule), 0, (part,))
    assert (memory.in_flight, memory.activations) == (2, 2 * 14)


def test_the_slowest_stage_bounds_uneven_ones() -> None:
    parts = tuple(PartCosts(forward_s=f, backward_s=2 * f) for f in (1.0, 3.0, 1.0))
    run = simulate_pipeline(make_schedule("1f1b", stages=3, microbatches=100), StepCosts(parts=parts))
    # The slow stage works all the time but for the first forward and the last backward of its neighbours.
    assert run.duration == pytest.approx(1 + (1 + 2) + 100 * 9 + 2, abs=9)
    assert run.stages[1].idle < 10
    slow = sum(segment.seconds for segment in run.critical_path if segment.stage == 1)
    assert slow > 0.9 * run.duration


def test_messages_are_on_the_critical_path() -> None:
    schedule = make_schedule("gpipe", stages=2, microbatches=1)
    run = simulate_pipeline(schedule, equal(2, 1.0, 2.0, forward_send_s=0.25, backward_send_s=0.5))
    assert run.duration == 1 + 0.25 + 1 + 2 + 0.5 + 2
    assert [(s.stage, s.what, s.seconds) for s in run.critical_path] == [
        (0, "1 F", 1.0), (0, "send", 0.25), (1, "1 B + 1 F", 3.0), (1, "send", 0.5), (0, "1 B", 2.0),
    ]  # fmt: skip
    first, second = run.stages
    assert (first.sending, first.idle) == (0.5, 0.25 + 3)
    assert (second.sending, second.idle) == (0.25, 1 + 0.5 + 2)


def test_messages_between_two_stages_go_one_after_the_other() -> None:
    schedule = make_schedule("gpipe", stages=2, microbatches=3)
    run = simulate_pipeline(schedule, equal(2, 1.0, 1.0, forward_send_s=2.0))
    assert list(run.stages[1].starts[:3]) == [3.0, 5.0, 7.0]


def test_a_stage_that_cannot_compute_while_it_sends_waits() -> None:
    schedule = make_schedule("gpipe", stages=2, microbatches=2)
    costs = equal(2, 1.0, 1.0, forward_send_s=0.5)
    assert list(simulate_pipeline(schedule, costs).stages[0].starts[:2]) == [0.0, 1.0]
    blocking = simulate_pipeline(schedule, replace(costs, overlap_sends=False))
    assert list(blocking.stages[0].starts[:2]) == [0.0, 1.5]
    for stage in blocking.stages:
        assert stage.busy + stage.sending + stage.reducing + stage.idle == pytest.approx(blocking.duration)


@pytest.mark.parametrize(("buckets", "exposed"), [(0, 4.0), (1, 4.0), (2, 3.0), (4, 2.5)])
def test_gradient_reduction_hides_behind_the_last_backward_pass(buckets: int, exposed: float) -> None:
    schedule = make_schedule("1f1b", stages=1, microbatches=2)
    costs = replace(equal(1, 1.0, 2.0, reduce_s=4.0), buckets=buckets, update_s=(0.5,))
    run = simulate_pipeline(schedule, costs)
    # 2 s of backward in k pieces: 1/k of it, then 4 s of reduction, of which 2 - 2/k are hidden.
    assert run.stages[0].reducing == pytest.approx(exposed)
    assert run.duration == pytest.approx(6 + exposed + 0.5)


def test_reductions_of_later_stages_hide_in_the_cool_down() -> None:
    schedule = make_schedule("1f1b", stages=4, microbatches=8)
    with_reduction = simulate_pipeline(schedule, equal(4, reduce_s=1.0))
    without = simulate_pipeline(schedule, equal(4))
    assert with_reduction.duration - without.duration == pytest.approx(1.0)  # the first stage's only
    assert [stage.reducing for stage in with_reduction.stages] == [1.0] * 4


def test_orders_that_wait_in_a_circle_are_named() -> None:
    orders = ((Task(F, 0), Task(B, 0), Task(F, 1), Task(B, 1)), (Task(F, 0), Task(F, 1), Task(B, 0), Task(B, 1)))
    schedule = checked(PipelineSchedule(name="own", stages=2, microbatches=2, orders=orders))
    with pytest.raises(
        UsageError, match="stage 0 at B0 waits for B0 of stage 1; stage 1 at F1 waits for F1 of stage 0"
    ):
        simulate_pipeline(schedule, equal(2))


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (((Task(F, 0),),), "lacks 1 tasks, e.g. B0"),
        (((Task(F, 0), Task(B, 0), Task(B, 0)),), "does B0 twice"),
        (((Task(F, 0), Task(B, 0), Task(W, 0)),), "does not know 1 tasks, e.g. W0"),
        ((), "orders for 0 of 1 stages"),
    ],
)
def test_a_schedule_does_everything_once(orders: tuple[tuple[Task, ...], ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked(PipelineSchedule(name="own", stages=1, microbatches=1, orders=orders))


def test_counts_that_no_schedule_can_have() -> None:
    with pytest.raises(UsageError, match="did you mean '1f1b'"):
        make_schedule("1f1", stages=2, microbatches=2)
    with pytest.raises(UsageError, match="has no virtual stages, 2 were asked for"):
        make_schedule("1f1b", stages=2, microbatches=2, chunks=2)
    with pytest.raises(UsageError, match="11 do not make 2 of them") as caught:
        make_schedule("interleaved", stages=4, microbatches=11, chunks=2)
    assert "use 10 or 12 microbatches" in str(caught.value)
    with pytest.raises(UsageError, match="0 microbatches"):
        make_schedule("gpipe", stages=2, microbatches=0)


SIZES = st.tuples(
    st.sampled_from(sorted(SCHEDULES)), st.integers(1, 5), st.integers(1, 6), st.integers(2, 3), st.randoms()
)


@given(SIZES)
def test_every_stage_adds_up_and_longer_tasks_never_help(sizes: tuple[str, int, int, int, object]) -> None:
    name, stages, groups, chunks, random = sizes
    chunks = chunks if name == "interleaved" else 1
    schedule = checked(make_schedule(name, stages=stages, microbatches=groups * stages, chunks=chunks))

    def seconds() -> float:
        return random.uniform(0.1, 2.0)  # type: ignore[attr-defined]

    parts = tuple(
        PartCosts(
            forward_s=seconds(), backward_s=seconds(), weight_s=seconds(), forward_send_s=seconds() / 4,
            backward_send_s=seconds() / 4, reduce_s=seconds(),
        )
        for _ in range(schedule.positions)
    )  # fmt: skip
    costs = StepCosts(parts=parts, update_s=(0.5,) * stages, buckets=3)
    run = simulate_pipeline(schedule, costs)
    for stage in run.stages:
        assert stage.busy + stage.sending + stage.reducing + stage.idle == pytest.approx(run.duration)
        assert stage.idle >= 0
    assert run.duration >= max(stage.busy for stage in run.stages) - 1e-9
    slower = (*parts[:-1], replace(parts[-1], backward_s=parts[-1].backward_s + 1))
    assert simulate_pipeline(schedule, replace(costs, parts=slower)).duration >= run.duration - 1e-9
    if schedule.barrier:
        assert sum(segment.seconds for segment in run.critical_path) == pytest.approx(run.duration)


def test_placement_is_its_own_inverse() -> None:
    loop = make_schedule("interleaved", stages=3, microbatches=3, chunks=2)
    for schedule in (loop, replace(loop, placement="v")):
        for position in range(schedule.positions):
            assert schedule.position(*schedule.place(position)) == position
    assert [replace(loop, placement="v").place(p) for p in range(6)] == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]


def test_what_two_stages_share_is_summed_when_both_have_come() -> None:
    """One microbatch: the last stage ends at 1 + 1 + 2, the first at 6; the sum takes 0.25 behind both."""
    schedule = make_schedule("1f1b", stages=2, microbatches=1)
    costs = replace(equal(2, 1.0, 2.0), update_s=(0.5, 3.0), tied_s=0.25)
    run = simulate_pipeline(schedule, costs)
    assert [stage.end for stage in run.stages] == [6.0 + 0.25 + 0.5, 6.0 + 0.25 + 3.0]
    assert run.stages[1].ready == 4.0
    assert [(each.stage, each.what) for each in run.critical_path][-3:] == [
        (0, "1 B"),
        (1, "tied gradients"),
        (1, "optimizer"),
    ]
    assert sum(each.seconds for each in run.critical_path) == pytest.approx(run.duration)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"])
def test_more_passes_than_can_be_written_out_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="more than 2,097,152 passes"):
        make_schedule(name, stages=4, microbatches=2**31, chunks=2 if name == "interleaved" else 1)
