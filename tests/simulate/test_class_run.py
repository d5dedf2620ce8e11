"""Ranks of different speed, by hand: collectives wait for the slowest, and all follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.hardware.conditions import Conditions
from meshcast.lower import Kernel, Schedule
from meshcast.mesh import Mesh
from meshcast.options import Options
from meshcast.pipeline import prepare
from meshcast.simulate import Simulator
from meshcast.simulate.class_run import ClassRun, device_speeds, simulate_classes
from tests.lower.programs import all_reduce_text
from tests.simulate.schedules import Times, exchange, kernel, loop, program, schedule

MESH = Mesh.of({"data": 2, "tensor": 2})


def wire_time(k: Kernel) -> float:
    assert k.collective is not None
    return k.collective.input_bytes / 1000


def over(axis: str, step: Kernel) -> Kernel:
    assert step.collective is not None
    return replace(step, geometry=replace(step.collective, group=MESH.group([axis])))


def classes_run(body: Schedule, speeds: list[float], gap: float = 0.0) -> ClassRun:
    return simulate_classes(Simulator(program(body)), Times(gap=gap), wire_time, np.array(speeds))


def test_all_wait_for_the_straggler() -> None:
    body = schedule([kernel([0], [1], 2), over("tensor", exchange([1], [2], 1)), kernel([2], [3], 1)])
    run = classes_run(body, [1, 0.5, 1, 1])
    # Rank 1 computes for 4 s; rank 0 waits 2 s for it. Ranks 2 and 3 are another group. Then 1 s of messages.
    assert run.classes.sizes.tolist() == [1, 1, 2]
    assert run.ends.tolist() == [4 + 1 + 1, 4 + 1 + 2, 2 + 1 + 1]
    assert run.waiting.tolist() == [2, 0, 0]
    assert run.busy.tolist() == [3, 6, 3]
    assert run.duration == 7


def test_a_delay_spreads_from_group_to_group() -> None:
    body = schedule([kernel([0], [1], 1), over("tensor", exchange([1], [2], 1)), over("data", exchange([2], [3], 1))])
    run = classes_run(body, [1, 0.25, 1, 1])
    assert set(run.ends.tolist()) == {4 + 1 + 1}  # rank 3 meets rank 1, ranks 2 and 0 meet after that


def test_work_beside_a_collective_hides_the_wait() -> None:
    body = schedule([kernel([0], [1], 1), over("tensor", exchange([1], [2], 1)), kernel([0], [3], 3)])
    run = classes_run(body, [1, 0.5, 1, 1])
    assert run.ends.tolist() == [4, 8, 4]


@pytest.mark.parametrize("trips", [1, 2, 5, 1000])
def test_a_loop_goes_at_the_pace_of_the_slowest(trips: int) -> None:
    inner = schedule([kernel([1], [2], 1), over("tensor", exchange([2], [3], 1))], inputs=(1,), outputs=(3,))
    run = classes_run(schedule([loop(inner, trips, [0], [4])]), [1, 0.5, 1, 1])
    assert run.ends.tolist() == [3 * trips, 3 * trips, 2 * trips]
    assert run.waiting.tolist() == [trips, 0, 0]
    assert run.busy.tolist() == [trips, 2 * trips, trips]


def test_slack_that_a_few_iterations_use_up() -> None:
    """Ranks 0-1 and 2-3 meet over "tensor" first and over "data" last: what one lags is carried into the next turn."""
    inner = schedule(
        [
            kernel([1], [2], 1), over("tensor", exchange([2], [3], 1)), kernel([3], [4], 1),
            over("data", exchange([4], [5], 1)),
        ],
        inputs=(1,), outputs=(5,),
    )  # fmt: skip
    speeds = [1, 0.5, 1, 0.8]
    once = classes_run(schedule([loop(inner, 7, [0], [6])]), speeds)
    unrolled = []
    for turn in range(7):
        first = 10 * turn
        unrolled += [
            kernel([first], [first + 1], 1), over("tensor", exchange([first + 1], [first + 2], 1)),
            kernel([first + 2], [first + 3], 1), over("data", exchange([first + 3], [first + 10], 1)),
        ]  # fmt: skip
    body = Schedule(inputs=(0,), outputs=(), steps=tuple(unrolled))
    flat = simulate_classes(Simulator(replace(program(body), tensors=())), Times(), wire_time, np.array(speeds))
    assert once.ends.tolist() == pytest.approx(flat.ends.tolist())
    assert once.waiting.tolist() == pytest.approx(flat.waiting.tolist())


STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.5, 1.0, 2.0])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(STEPS, STEPS, st.integers(0, 4), st.sampled_from([0.0, 0.25]))
def test_one_class_is_the_single_rank(
    outer: list[tuple[bool, int, int, float]], inner: list[tuple[bool, int, int, float]], trips: int, gap: float
) -> None:
    def block(steps: list[tuple[bool, int, int, float]], base: int) -> list[Kernel]:
        return [
            (exchange if sends else kernel)([base + reads], [base + 4 + index], seconds)
            for index, (sends, reads, _, seconds) in enumerate(steps)
        ]

    body = schedule(block(inner, 20), inputs=(20,), outputs=(24,))
    whole = schedule([*block(outer, 0), loop(body, trips, [4], [19])])
    alone = Simulator(program(whole)).duration(Times(gap=gap), wire_time)
    run = simulate_classes(Simulator(program(whole)), Times(gap=gap), wire_time, np.ones(2))
    assert run.duration == pytest.approx(alone, rel=1e-12)
    slower = simulate_classes(Simulator(program(whole)), Times(gap=gap), wire_time, np.array([1.0, 0.5]))
    assert slower.duration >= run.duration


def test_full_speed_makes_no_classes() -> None:
    assert device_speeds(Conditions(speed={1: 1.0}), 2) is None
    speeds = device_speeds(Conditions(speed={1: 0.5}), 3)
    assert speeds is not None
    assert speeds.tolist() == [1.0, 0.5, 1.0]


def test_a_straggler_in_a_prediction(tmp_path: Path) -> None:
    path = tmp_path / "reduce.mlir"
    path.write_text(all_reduce_text(("multiply", "reduce", "use")))
    options = Options(on="dgx-h100", host="off", levers=False)
    healthy = prepare(path, options).predict()
    same = prepare(path, replace(options, conditions=Conditions(speed={0: 1.0}))).predict()
    slow = prepare(path, replace(options, conditions=Conditions(speed={0: 0.5}))).predict()
    assert same.step_time_s == healthy.step_time_s
    assert not same.ranks
    assert healthy.step_time_s is not None
    assert slow.step_time_s is not None
    assert slow.breakdown is not None
    assert slow.step_time_s > healthy.step_time_s
    assert slow.breakdown.total == pytest.approx(slow.step_time_s)
    assert sum(share.devices for share in slow.ranks) == slow.devices
    assert slow.ranks[0].speed == 0.5
    assert slow.to_json()["ranks"][0]["first_device"] == 0
    assert "Ranks that are not alike" in str(slow)
