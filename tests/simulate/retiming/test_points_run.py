"""Many points simulated at once: each is what it is alone, to the last bit, whatever the order of its events."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base import Group, NumberColumn, PartedError, mapped
from meshcast.base.column import column_of
from meshcast.estimate import EstimatedKernels, KernelsByPoint
from meshcast.lower import Schedule
from meshcast.simulate import PointsRun, Simulator, rank_again
from meshcast.simulate.contention import Taken
from meshcast.simulate.exposure import covered, exposed_by
from meshcast.simulate.issue_order import plan
from meshcast.simulate.retiming.points_events import EventsAtPoints
from meshcast.simulate.retiming.points_exposure import exposed_at_points
from meshcast.simulate.scheduling import Scheduling
from tests.simulate.schedules import OneLink, Takes, exchange, kernel, loop, program, schedule
from tests.simulate.test_channels import STEPS, Graph, build
from tests.simulate.test_contention import estimate

POINTS = 9
TAKEN = st.sampled_from([None, Taken(cores=0.2, memory=0.3), Taken(cores=0.5, memory=0.9)])
SPREAD = st.sampled_from([0.0, 0.01, 0.3, 3.0])
INNER = schedule([exchange([40], [41], 2), kernel([40], [42], 3), kernel([41, 42], [43], 1)], [40], [43])


def with_loop(body: Schedule, trips: int) -> Schedule:
    """A block with a loop in its middle, in which something overlaps, too."""
    half = len(body.steps) // 2
    return schedule([*body.steps[:half], loop(INNER, trips, [0], [60]), *body.steps[half:]], body.inputs, body.outputs)


class Rates(OneLink):
    """One link whose rate is another at each point."""

    def __init__(self, seconds: dict[int, Any]) -> None:
        super().__init__(lambda each: seconds[each.collective.payload_bytes] if each.collective is not None else 0.0)


def drawn(body: Schedule, draw: random.Random, spread: float) -> tuple[list[EstimatedKernels], list[dict[int, float]]]:
    """Times of kernels and collectives at each point by lot; now and then a collective takes none, or a kernel at all points."""

    def near(seconds: float) -> float:
        return seconds * (1 + spread * draw.random())

    kernels, links = [], []
    every = [each for each, _ in body.walk()]
    nothing = {each.cost_key for each in every if draw.random() < 0.1}
    for _ in range(POINTS):
        by_key = {
            each.cost_key: estimate(0.0, 0.0)
            if each.cost_key in nothing
            else estimate(near(each.read_bytes / 1000), near(each.read_bytes / 1500), near(0.1))
            for each in every
            if each.collective is None
        }
        kernels.append(EstimatedKernels(by_key=by_key, gap=0.125))
        sizes = {each.collective.payload_bytes for each in every if each.collective is not None}
        links.append({size: near(size / 1000) * (draw.random() > 0.05) for size in sorted(sizes)})
    return kernels, links


def at(thing: Any, point: int) -> Any:
    """What something with columns is at a point."""
    return mapped(thing, lambda column: float(column.values[point]))


@settings(max_examples=60, deadline=None)
@given(
    graph=STEPS, taken=TAKEN, seed=st.integers(0, 10**6), spread=SPREAD, trips=st.integers(1, 3), shared=st.booleans()
)
def test_each_point_is_what_it_is_alone(
    graph: Graph, taken: Taken | None, seed: int, spread: float, trips: int, shared: bool
) -> None:
    body = with_loop(build(graph), trips)
    scheduling = Scheduling(channels=1) if shared else None
    simulator = Simulator(program(body), scheduling, Takes(taken) if taken is not None else None)
    kernels, links = drawn(body, random.Random(seed), spread)
    columns = {size: column_of([each[size] for each in links]) for size in links[0]}
    many = rank_again(simulator, KernelsByPoint.of_points(kernels), Rates(columns), POINTS)
    assert isinstance(many, PointsRun)
    length, timeline = many.length(simulator.plan), simulator.timeline(many, spans=False, paths=False)
    ran = {point: each for each, places in many.executed_by_point(simulator.plan) for point in _all(places)}
    for point in range(POINTS):
        alone = simulator.with_times(kernels[point], Rates(links[point]))
        assert at(length, point) == alone.length(simulator.plan)
        assert ran[point].kernels == alone.executed(simulator.plan).kernels
        expected = simulator.timeline(alone, spans=False, paths=False)
        found = at(timeline, point)
        assert sorted(found.groups, key=str) == sorted(expected.groups, key=str)
        assert _without_groups(found) == _without_groups(expected)


def _all(places: Any) -> list[int]:
    return list(range(POINTS)) if places is None else places.tolist()


def _without_groups(timeline: Any) -> tuple[Any, ...]:
    return timeline.duration, timeline.breakdown, timeline.communication_busy, timeline.energy, timeline.slowdown


def test_points_that_part_come_together_again() -> None:
    """A kernel of 3 s beside a collective of 2 or 4 s, then both wait for each other: four states, whoever is first."""
    block = plan(schedule([kernel([0], [1], 3), exchange([0], [2], 2), kernel([1, 2], [3], 1)]))
    seconds = np.array([[3.0, 3.0, 3.0], [2.0, 4.0, 3.0], [1.0, 1.0, 1.0]])
    asked: list[tuple[int | None, tuple[int, ...]]] = []

    def speeds(computing: int | None, sending: tuple[int, ...]) -> tuple[float, list[float]]:
        asked.append((computing, sending))
        return (0.5 if sending else 1.0), [1.0] * len(sending)

    events = EventsAtPoints(block, seconds, speeds)
    events.run(block.orders[0])
    # Beside the collective the kernel goes at half speed: 1 of its 3 s is done after 2, 2 after 4, 1.5 after 3.
    assert events.ends.tolist() == [[4.0, 5.0, 4.5], [2.0, 4.0, 3.0], [5.0, 6.0, 5.5]]
    assert events.starts[2].tolist() == [4.0, 5.0, 4.5]
    assert len(asked) == len(set(asked)), "each pair is asked once for all points"


def test_what_is_exposed_by_hand() -> None:
    """Computing from 1 to 2 and from 4 on; "a" sends from 0 to 3, at the other point from 2.5 to 3, "b" from 2 to 4."""
    group_a, group_b = (Group(dims=((2, 1),), axes=(axis,)) for axis in "ab")
    begun, ended = np.array([[1.0, 1.0], [4.0, 4.0]]), np.array([[2.0, 2.0], [5.0, 5.0]])
    sent, arrived = np.array([[0.0, 2.5], [2.0, 2.0]]), np.array([[3.0, 3.0], [4.0, 4.0]])
    found = exposed_at_points(np.array([5.0, 5.0]), begun, ended, sent, arrived, [group_a, group_b])
    assert found.exposed.tolist() == [3.0, 2.0]
    assert found.idle.tolist() == [0.0, 1.0]
    assert found.by_group[group_a].tolist() == [1.5, 0.25]
    assert found.by_group[group_b].tolist() == [1.5, 1.75]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_exposure_is_that_of_one_point(seed: int) -> None:
    draw = random.Random(seed)
    groups = [Group(dims=((2, 1),), axes=(axis,)) for axis in "abc"]
    count, sends = draw.randint(0, 5), draw.randint(0, 4)
    grid = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 0.7]
    edges = np.sort(
        np.array([[draw.choice(grid) for _ in range(3)] for _ in range(2 * count)]).reshape(2 * count, 3), 0
    )
    begun, ended = edges[::2], edges[1::2]
    pairs = np.array([[sorted(draw.choice(grid) for _ in range(2)) for _ in range(3)] for _ in range(sends)])
    pairs = pairs.reshape(sends, 3, 2)
    over = [groups[number % 3] for number in range(sends)]
    found = exposed_at_points(np.full(3, 3.0), begun, ended, pairs[..., 0], pairs[..., 1], over)
    for point in range(3):
        occupied = [(float(a[point]), float(b[point])) for a, b in zip(begun, ended, strict=True)]
        sending = [
            (float(each[point, 0]), float(each[point, 1]), group) for each, group in zip(pairs, over, strict=True)
        ]
        exposed, idle, by_group = exposed_by(covered([(0.0, 3.0)], occupied)[1], sending)
        assert (found.exposed[point], found.idle[point]) == pytest.approx((exposed, idle), abs=0)
        for group, seconds in by_group.items():
            assert found.by_group[group][point] == pytest.approx(seconds, rel=1e-15)


def test_branches_that_differ_and_blocks_that_are_large_part() -> None:
    from meshcast.lower import BranchStep
    from meshcast.simulate.retiming import points_run

    one, other = (schedule([kernel([0], [1], seconds)], [0], [1]) for seconds in (1, 2))
    body = schedule([BranchStep(bodies=(one, other), reads=(0,), writes=(1,))])
    simulator = Simulator(program(body))
    first, second = (each for each, _ in one.walk()), (each for each, _ in other.walk())
    a, b = next(first).cost_key, next(second).cost_key
    times = [EstimatedKernels(by_key={a: estimate(x, x), b: estimate(2.0, 2.0)}, gap=0.0) for x in (1.0, 3.0)]
    many = rank_again(simulator, KernelsByPoint.of_points(times), OneLink(lambda _: 1.0), 2)
    with pytest.raises(PartedError) as parted:
        many.length(simulator.plan)
    assert sorted(side.tolist() for side in parted.value.sides()) == [[0], [1]]
    kernels = KernelsByPoint.of_points([times[0]] * 4)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(points_run, "MOST_NUMBERS", 2)
        with pytest.raises(PartedError) as halves:
            rank_again(simulator, kernels, OneLink(lambda _: 1.0), 4).length(simulator.plan)
    assert [side.tolist() for side in halves.value.sides()] == [[0, 1], [2, 3]]


def test_points_of_one_device_share_its_kernels() -> None:
    """Only the link differs: the kernels' columns have one place."""
    inner = schedule([exchange([0], [1], 2), kernel([0], [2], 3)])
    simulator = Simulator(program(inner), None, Takes(Taken(cores=0.0, memory=0.0)))
    kernels = EstimatedKernels(
        by_key={each.cost_key: estimate(3.0, 3.0) for each, _ in inner.walk() if each.collective is None}, gap=0.0
    )
    link = Rates({2000: NumberColumn(np.array([2.0, 4.0]))})
    assert at(rank_again(simulator, kernels, link, 2).length(simulator.plan), 0).all == 3.0
    assert at(rank_again(simulator, kernels, link, 2).length(simulator.plan), 1).all == 4.0


def test_what_is_the_same_at_all_points_is_one_number() -> None:
    """A step that reads nothing that differs is kept by what it reads, and asked for again by other numbers of points."""
    body = schedule([exchange([0], [1], 2), kernel([0], [2], 3), kernel([1, 2], [3], 1)])
    simulator = Simulator(program(body), None, Takes(Taken(cores=0.2, memory=0.3)))
    kernels, links = drawn(body, random.Random(1), 0.0)
    many = rank_again(simulator, KernelsByPoint.of_points([kernels[0]] * 4), Rates(links[0]), 4)
    columns: list[Any] = []
    mapped((many.length(simulator.plan), simulator.timeline(many, spans=False, paths=False)), columns.append)
    assert columns == []
