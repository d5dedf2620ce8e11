"""Ranks of different speed, by hand: collectives wait for the slowest, and all follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast import prepare
from meshcast.base.mesh import Mesh
from meshcast.hardware.conditions import Conditions
from meshcast.lower import Kernel, LoopStep, Schedule
from meshcast.lower.kernel import Step
from meshcast.options.options import Options
from meshcast.simulate import Simulator
from meshcast.simulate.class_run import ClassRun, device_speeds, simulate_classes
from meshcast.simulate.contention import Taken
from meshcast.simulate.scheduling import SCHEDULERS, Scheduling
from tests.lower.programs import all_reduce_text
from tests.simulate.schedules import OneLink, Takes, Times, exchange, kernel, loop, program, schedule
from tests.simulate.test_channels import SETTINGS, STEPS, build

MESH = Mesh.of({"data": 2, "tensor": 2})
SLOW_ONE = np.array([1, 0.5, 1, 1])


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


def on_mesh(body: Schedule) -> Schedule:
    """The same with its collectives "a" over the mesh's "data" and "b" over its "tensor"."""
    axes = {"a": "data", "b": "tensor"}

    def moved(step: Step) -> Step:
        if isinstance(step, Kernel):
            return over(axes[step.collective.group.axes[0]], step) if step.collective is not None else step
        assert isinstance(step, LoopStep)
        return replace(step, body=on_mesh(step.body))

    return replace(body, steps=tuple(map(moved, body.steps)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A random program with two groups, and everything that decides when its steps run."""

    graph: list[tuple[str, int, list[int], str]]
    scheduling: Scheduling
    gap: float
    shared: bool
    taken: Taken | None

    @property
    def simulator(self) -> Simulator:
        contention = Takes(self.taken) if self.taken is not None else None
        return Simulator(program(on_mesh(build(self.graph))), self.scheduling, contention)

    @property
    def network(self) -> OneLink | Callable[[Kernel], float]:
        return OneLink(wire_time) if self.shared else wire_time

    def alone(self) -> float:
        return self.simulator.duration(Times(gap=self.gap), self.network)

    def ranks(self, *speeds: float) -> ClassRun:
        return simulate_classes(self.simulator, Times(gap=self.gap), self.network, np.array(speeds))


UNCONTENDED = st.builds(
    Case, graph=STEPS, scheduling=SETTINGS, gap=st.sampled_from([0.0, 0.25]), shared=st.just(False), taken=st.none()
)
CASES = st.builds(
    Case, graph=STEPS, scheduling=SETTINGS, gap=st.sampled_from([0.0, 0.25]), shared=st.booleans(),
    taken=st.one_of(st.none(), st.builds(Taken, cores=st.floats(0, 0.5), memory=st.floats(0, 1))),
)  # fmt: skip
SPEEDS = st.lists(st.sampled_from([0.25, 0.5, 0.8, 1.0]), min_size=4, max_size=4)


@settings(deadline=None, max_examples=80)
@given(CASES)
def test_one_class_is_the_single_rank(case: Case) -> None:
    """Whatever the scheduler, the channels, the links that are shared and what is taken from compute."""
    run = case.ranks(1.0, 1.0, 1.0, 1.0)
    assert run.classes.count == 1
    assert run.duration == pytest.approx(case.alone(), rel=1e-12)
    assert run.waiting.tolist() == [0.0]


@settings(deadline=None, max_examples=80)
@given(CASES)
def test_classes_that_hardly_differ_are_the_single_rank(case: Case) -> None:
    """Four classes side by side, each with streams of its own, of which none is slower than rounding errors."""
    run = case.ranks(1.0, 1 - 1e-14, 1 - 2e-14, 1 - 3e-14)
    assert run.classes.count == 4
    assert run.duration == pytest.approx(case.alone(), rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(CASES, SPEEDS)
def test_classes_are_as_good_as_every_rank(case: Case, speeds: list[float]) -> None:
    run = case.ranks(*speeds)
    every = case.ranks(*(speed * (1 - rank * 1e-14) for rank, speed in enumerate(speeds)))
    assert every.classes.count == 4
    assert every.ends.tolist() == pytest.approx(run.ends[run.classes.of_rank].tolist(), rel=1e-9)


@settings(deadline=None, max_examples=80)
@given(UNCONTENDED, SPEEDS, SPEEDS)
def test_a_slower_device_never_makes_a_step_faster(case: Case, some: list[float], others: list[float]) -> None:
    slower = case.ranks(*map(min, some, others))
    faster = case.ranks(*some)
    assert slower.duration >= faster.duration * (1 - 1e-12)
    assert faster.duration >= case.alone() * (1 - 1e-12)
    assert np.all(
        slower.ends[slower.classes.of_rank] >= faster.ends[faster.classes.of_rank] * (1 - 1e-12)
    )  # of every rank


@settings(deadline=None, max_examples=60)
@given(CASES, SPEEDS)
def test_all_as_slow_as_the_slowest_bounds_the_step(case: Case, speeds: list[float]) -> None:
    """Contention aside, the step of unequal ranks is at most that of a device with the least of their speeds."""
    free = replace(case, shared=False, taken=None)
    order_fixed = free.ranks(*[min(speeds)] * 4)
    assert free.ranks(*speeds).duration <= order_fixed.duration * (1 + 1e-12)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("channels", [0, 1, 2])
@pytest.mark.parametrize("taken", [None, Taken(cores=0.15, memory=0.3)])
def test_a_little_slower_in_a_synchronous_program(scheduler: str, channels: int, taken: Taken | None) -> None:
    """Products of 1 s and collectives over two groups in turn: at 0.98 every collective waits for one device."""
    graph = [("k", 1, [0], "a"), ("c", 1, [1], "a"), ("k", 1, [2], "a"), ("c", 1, [3], "b")]
    scheduling = Scheduling(scheduler=scheduler, channels=channels)  # type: ignore[arg-type]
    case = Case(graph=graph, scheduling=scheduling, gap=0.0, shared=True, taken=taken)
    added = case.ranks(0.98, 1, 1, 1).duration - case.alone()
    if scheduler == "ideal":  # waits for nothing: 2 s of collectives beside 2 s of products, or 1 s and 1 s
        assert added > 0
    else:
        assert added == pytest.approx(2 / 0.98 - 2)


def test_the_scheduler_holds_for_slow_ranks_too() -> None:
    """Serial: 2 s / 0.5 of products and 3 s of collectives follow each other; one that hides has them side by side."""
    body = schedule([exchange([0], [1], 3, over="a"), kernel([0], [2], 2)])
    for scheduler, seconds in (("serial", 3 + 4), ("program", 4), ("latency-hiding", 4)):
        simulator = Simulator(program(on_mesh(body)), Scheduling(scheduler=scheduler))  # type: ignore[arg-type]
        assert simulate_classes(simulator, Times(), wire_time, np.array([0.5, 1, 1, 1])).duration == seconds


def test_contention_lasts_as_long_as_the_collective() -> None:
    """A fifth of the cores, 4 s of messages from when rank 1 has done its 1 s / 0.5: rank 0 waits for 1 s, undisturbed.

    Of 6 s beside the messages rank 0 does 1 s before they begin and 3.2 s while they last, and is done at 2 + 4 + 1.8;
    rank 1 comes to its kernel at 2 s, does 3.2 s of 12 by 6 s and is done at 6 + 8.8.
    """
    body = schedule([kernel([0], [1], 1), over("tensor", exchange([1], [2], 4)), kernel([1], [3], 6)])
    simulator = Simulator(program(body), None, Takes(Taken(cores=0.2, memory=0.0)))
    run = simulate_classes(simulator, Times(), wire_time, np.array([1, 0.5, 1, 1]))
    assert run.ends.tolist() == pytest.approx([2 + 4 + 1.8, 6 + 8.8, 1 + 4 + 2.8])
    assert run.waiting.tolist() == [1, 0, 0]


def test_channels_of_two_groups_wait_apart() -> None:
    """Rank 1 is late for "tensor" only with rank 0, for "data" with rank 3; on one channel the second waits for the first."""
    steps = [kernel([0], [1], 1), over("tensor", exchange([1], [2], 1)), over("data", exchange([1], [3], 3))]
    by_channels = [
        simulate_classes(Simulator(program(schedule(steps)), Scheduling(channels=n)), Times(), wire_time, SLOW_ONE)
        for n in (0, 1)
    ]
    assert [run.duration for run in by_channels] == [2 + 3, 2 + 1 + 3]


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
    same = prepare(path, options.having(conditions=Conditions(speed={0: 1.0}))).predict()
    slow = prepare(path, options.having(conditions=Conditions(speed={0: 0.5}))).predict()
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
    assert "Unequal ranks" in str(slow)
