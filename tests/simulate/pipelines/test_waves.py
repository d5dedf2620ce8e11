"""The simulation by waves against the equations of its docstring, task by task."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.simulate.pipelines import (
    SCHEDULES,
    PartCosts,
    PassWork,
    PipelineSchedule,
    StepCosts,
    Task,
    make_schedule,
    simulate_pipeline,
    stage_memory,
)

F, B, W = PassWork.FORWARD, PassWork.BACKWARD, PassWork.WEIGHT
Done = dict[tuple[PassWork, int, int], tuple[float, float]]  # (work, position, microbatch): end, arrival


def one_by_one(schedule: PipelineSchedule, costs: StepCosts) -> list[list[float]]:
    """When every task of every stage starts, each looked at alone until all are done."""
    done: Done = {}
    channels: dict[tuple[int, int], float] = {}
    free = [0.0] * schedule.stages
    starts: list[list[float]] = [[] for _ in range(schedule.stages)]
    while any(len(starts[stage]) < len(order) for stage, order in enumerate(schedule.orders)):
        for stage, order in enumerate(schedule.orders):
            if len(starts[stage]) == len(order):
                continue
            task = order[len(starts[stage])]
            position = schedule.position(stage, task.chunk)
            ready = arrival_of(task, position, schedule, done)
            if ready is None:
                continue
            start = max(free[stage], ready)
            starts[stage].append(start)
            part = costs.parts[position]
            whole = part.backward_s + (0.0 if schedule.split else part.weight_s)
            end = start + {F: part.forward_s, B: whole, W: part.weight_s}[task.work]
            wire, target = {
                F: (part.forward_send_s, position + 1), B: (part.backward_send_s, position - 1), W: (0.0, position)
            }[task.work]  # fmt: skip
            arrival = end
            if wire and 0 <= target < schedule.positions and schedule.place(target)[0] != stage:
                channel = stage, schedule.place(target)[0]
                arrival = channels[channel] = max(end, channels.get(channel, 0.0)) + wire
            done[task.work, position, task.microbatch] = end, arrival
            free[stage] = end if costs.overlap_sends else arrival
    return starts


def arrival_of(task: Task, position: int, schedule: PipelineSchedule, done: Done) -> float | None:
    """When what a task waits for is there; None while that is not known."""
    if task.work is F:
        found = done.get((F, position - 1, task.microbatch)) if position else (0.0, 0.0)
    elif task.work is W:
        found = done.get((B, position, task.microbatch))
        return None if found is None else found[0]
    elif position == schedule.positions - 1 or (F, position, task.microbatch) not in done:
        found = done.get((F, position, task.microbatch))
    else:
        found = done.get((B, position + 1, task.microbatch))
    return None if found is None else found[1]


def drawn_costs(schedule: PipelineSchedule, draw: random.Random) -> StepCosts:
    def seconds() -> float:
        return draw.choice([0.0, draw.uniform(0, 1), draw.uniform(0, 3)])

    def part() -> PartCosts:
        return PartCosts(
            forward_s=seconds(), backward_s=seconds(), weight_s=seconds(), forward_send_s=seconds(),
            backward_send_s=seconds(), saved_bytes=draw.randrange(5), weight_saved_bytes=draw.randrange(5),
            working_bytes={work: draw.randrange(4) for work in PassWork}, fixed_bytes=draw.randrange(9),
        )  # fmt: skip

    return StepCosts(parts=tuple(part() for _ in range(schedule.positions)), overlap_sends=draw.random() < 0.5)


CASES = st.tuples(
    st.sampled_from(sorted(SCHEDULES)), st.integers(1, 5), st.integers(1, 5), st.integers(2, 4), st.integers(0, 2**32)
)


@given(CASES)
def test_waves_are_the_tasks_one_by_one(case: tuple[str, int, int, int, int]) -> None:
    name, stages, groups, chunks, seed = case
    schedule = make_schedule(
        name, stages=stages, microbatches=groups * stages, chunks=chunks if name == "interleaved" else 1
    )
    costs = drawn_costs(schedule, random.Random(seed))
    run = simulate_pipeline(schedule, costs)
    assert [list(stage.starts) for stage in run.stages] == one_by_one(schedule, costs)


@given(CASES)
def test_memory_is_counted_task_by_task(case: tuple[str, int, int, int, int]) -> None:
    name, stages, groups, chunks, seed = case
    schedule = make_schedule(
        name, stages=stages, microbatches=groups * stages, chunks=chunks if name == "interleaved" else 1
    )
    parts = drawn_costs(schedule, random.Random(seed)).parts
    for stage, order in enumerate(schedule.orders):
        mine = [parts[schedule.position(stage, chunk)] for chunk in range(schedule.chunks)]
        live, flying, peak, most = 0, 0, 0, 0
        for task in order:
            part = mine[task.chunk]
            flying += task.work is F
            live += part.saved_bytes if task.work is F else 0
            live += part.weight_saved_bytes if task.work is B and schedule.split else 0
            peak, most = max(peak, live + part.working_bytes[task.work]), max(most, flying)
            if task.work is (W if schedule.split else B):
                flying -= 1
                live -= part.saved_bytes + (part.weight_saved_bytes if schedule.split else 0)
        found = stage_memory(schedule, stage, parts)
        assert found.peak == sum(part.fixed_bytes for part in mine) + peak
        assert found.in_flight == most


def test_a_placement_that_turns_round() -> None:
    """Two stages, the second and third part on the last of them: nothing is sent between these two."""
    order = (Task(F, 0), Task(F, 0, 1), Task(B, 0, 1), Task(B, 0))
    schedule = PipelineSchedule(name="v", stages=2, microbatches=1, chunks=2, orders=(order, order), placement="v")
    part = PartCosts(forward_s=1.0, backward_s=2.0, forward_send_s=0.5, backward_send_s=0.25)
    run = simulate_pipeline(schedule, StepCosts(parts=(part,) * 4))
    assert list(run.stages[0].starts) == [0.0, 4.0, 5.0, 11.5]
    assert list(run.stages[1].starts) == [1.5, 2.5, 7.25, 9.25]
    assert run.duration == pytest.approx(13.5)
