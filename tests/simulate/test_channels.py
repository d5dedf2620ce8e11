"""Channels of collectives and the schedulers, by hand: what runs at once, what waits, and what links share."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import UsageError
from meshcast.base.mesh import Mesh
from meshcast.lower import Schedule, Step
from meshcast.network.models import AlphaBeta
from meshcast.network.setting import Setting
from meshcast.simulate.network import OnNetwork
from meshcast.simulate.scheduling import SCHEDULERS, Scheduling
from meshcast.simulate.timeline import Span, Timeline
from meshcast.workload.graph import Collective
from tests.network.clusters import FABRIC, NODE, cluster
from tests.simulate.schedules import exchange, kernel, loop, run, schedule


def spans(timeline: Timeline) -> list[Span]:
    return [span for span in timeline.spans if isinstance(span, Span)]


def busy_and_exposed(timeline: Timeline) -> dict[str, tuple[float, float]]:
    return {str(each.group): (each.busy, each.exposed) for each in timeline.groups}


TWO = schedule([exchange([0], [1], 4, over="a"), exchange([0], [2], 3, over="b"), kernel([1, 2], [3], 1)])


def test_collectives_of_two_groups_run_at_once() -> None:
    timeline = run(TWO)
    assert timeline.duration == 5
    assert {(span.channel, span.start, span.end) for span in spans(timeline)} == {(1, 0, 4), (2, 0, 3), (0, 4, 5)}
    # 0 to 3 both are exposed and have half each; from 3 to 4 it is "a" alone.
    assert busy_and_exposed(timeline) == {"a": (4, 2.5), "b": (3, 1.5)}
    assert timeline.breakdown.exposed_communication == 4


def test_on_one_channel_they_follow_each_other() -> None:
    timeline = run(TWO, scheduling=Scheduling(channels=1))
    assert timeline.duration == 8
    assert busy_and_exposed(timeline) == {"a": (4, 4), "b": (3, 3)}


def test_three_groups_take_turns_on_two_channels() -> None:
    body = schedule([exchange([0], [i + 1], 1, over=name) for i, name in enumerate("abc")])
    timeline = run(body, scheduling=Scheduling(channels=2))
    assert {span.kernel.writes: span.channel for span in spans(timeline)} == {(1,): 1, (2,): 2, (3,): 1}
    assert timeline.duration == 2


def test_collectives_on_one_link_share_it() -> None:
    """Both at half speed until "b" has sent its 3 s at 6 s; the last second of "a" then alone."""
    timeline = run(TWO, shared=True)
    assert timeline.duration == 8
    assert {(span.start, span.end) for span in spans(timeline)} == {(0, 7), (0, 6), (7, 8)}
    assert timeline.slowdown.communication == 3 + 3
    assert timeline.slowdown.compute == 0


def test_levels_are_shared_by_how_much_of_them_is_used() -> None:
    """Two equal exchanges over the fabric go at half speed; one inside the node beside them at full speed."""
    machine = cluster(NODE, FABRIC).for_devices(16)
    mesh = Mesh.of({"across": 2, "inside": 8})

    network = OnNetwork(model=AlphaBeta(setting=Setting(cluster=machine, devices=16)))

    def over(axis: str) -> object:
        made = exchange([0], [1], 1)
        group = mesh.group([axis])
        geometry = Collective(kind="all_gather", group=group, input_bytes=1 << 40, output_bytes=group.size << 40)
        return type(made)(name="c", kind=made.kind, dtype="", geometry=geometry)

    inside, across = over("inside"), over("across")
    assert list(network.shares([inside, across])) == [1, 1]  # type: ignore[list-item]
    assert list(network.shares([across, across, inside])) == pytest.approx([0.5, 0.5, 1], rel=1e-3)  # type: ignore[list-item]


CHAIN = schedule([kernel([0], [1], 2), exchange([1], [2], 3), kernel([0], [3], 4), kernel([2, 3], [4], 1)])


@pytest.mark.parametrize(
    ("scheduler", "seconds"),
    [("serial", 2 + 3 + 4 + 1), ("program", 2 + 4 + 1), ("latency-hiding", 2 + 4 + 1), ("ideal", 2 + 4 + 1)],
)
def test_schedulers_by_hand(scheduler: str, seconds: float) -> None:
    assert run(CHAIN, scheduling=Scheduling(scheduler=scheduler)).duration == seconds  # type: ignore[arg-type]


def test_program_order_does_not_move_what_comes_later() -> None:
    """[product, exchange, use of it, independent product]: only the latency-hiding one fills the wait."""
    body = schedule([kernel([0], [1], 1), exchange([1], [2], 2), kernel([2], [3], 1), kernel([0], [4], 2)])
    durations = [run(body, scheduling=Scheduling(scheduler=s)).duration for s in SCHEDULERS]  # type: ignore[arg-type]
    assert durations == [6, 6, 4, 4]


def test_the_ideal_hides_whatever_the_data_says() -> None:
    body = schedule([exchange([0], [1], 3), kernel([1], [2], 2)])
    assert run(body, scheduling=Scheduling(scheduler="ideal")).duration == 3


def gathers(count: int) -> Schedule:
    """`count` gathers of 1 s, each for a product of 1 s that also needs the one before it."""
    steps = []
    for i in range(count):
        steps.append(exchange([0], [10 + i], 1, kind="all_gather"))
        steps.append(kernel([10 + i, 29 + i], [30 + i], 1))
    return schedule(steps)


def test_gathers_in_flight_are_bounded() -> None:
    def waiting(timeline: Timeline) -> int:
        """Most gathers that have begun while the product that uses them has not ended."""
        begun = {s.kernel.writes[0]: s.start for s in spans(timeline) if s.kernel.collective}
        used = {s.kernel.reads[0]: s.end for s in spans(timeline) if not s.kernel.collective}
        times = sorted(begun.values())
        return max(sum(begun[v] <= t < used[v] for v in begun) for t in times)

    slow = [run(gathers(6), compute=0.25, scheduling=Scheduling(gathers=n)) for n in (1, 2, 0)]
    assert [waiting(timeline) for timeline in slow] == [1, 2, 6 - 1]
    # With one, each gather waits for the end of the product that frees its place, except that the first has none.
    assert [timeline.duration for timeline in slow] == [1 + 6 * 4 + 5 * 1, 1 + 6 * 4, 1 + 6 * 4]


def test_a_gather_of_what_was_gathered_does_not_wait_for_itself() -> None:
    steps = [exchange([0], [1], 1, kind="all_gather"), exchange([0], [2], 1, kind="all_gather")]
    steps += [exchange([1], [3], 1, kind="all_gather"), kernel([2, 3], [4], 1)]
    for limit in (1, 2, 3):
        assert run(schedule(steps), scheduling=Scheduling(gathers=limit)).duration == 4


def test_a_setting_that_cannot_be_is_refused() -> None:
    for wrong in ({"scheduler": "best"}, {"channels": -1}, {"gathers": -1}, {"gathers": 2, "scheduler": "program"}):
        with pytest.raises(UsageError):
            Scheduling(**wrong)


# Steps: what, seconds, what they read, over which group.
STEPS = st.lists(
    st.tuples(
        st.sampled_from("kkcgl"), st.integers(0, 8), st.lists(st.integers(0, 30), min_size=1, max_size=2),
        st.sampled_from("ab"),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
Graph = list[tuple[str, int, list[int], str]]
SETTINGS = st.builds(
    Scheduling,
    scheduler=st.sampled_from(["serial", "program", "latency-hiding", "ideal"]),
    channels=st.integers(0, 2),
)


def build(graph: Graph) -> Schedule:
    steps: list[Step] = []
    for index, (kind, seconds, sources, over) in enumerate(graph):
        reads = [source % (index + 1) for source in sources]
        if kind == "l":
            inner = [exchange([40], [41], seconds, over=over), kernel([40], [42], 2), kernel([41, 42], [43], 1)]
            steps.append(loop(schedule(inner, [40], [43]), 3, reads, [index + 1]))
        elif kind == "k":
            steps.append(kernel(reads, [index + 1], seconds))
        else:
            name = "all_gather" if kind == "g" else "all_reduce"
            steps.append(exchange(reads, [index + 1], seconds, over=over, kind=name))
    return schedule(steps)


@settings(deadline=None, max_examples=60)
@given(STEPS, SETTINGS, st.floats(1, 8), st.floats(1, 8))
def test_faster_hardware_is_never_slower(graph: Graph, scheduling: Scheduling, compute: float, network: float) -> None:
    body = build(graph)
    slow = run(body, scheduling=scheduling).duration
    faster = run(body, scheduling=scheduling, compute=compute, network=network).duration
    assert faster <= slow * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(STEPS, SETTINGS, st.integers(0, 3), st.booleans())
def test_groups_add_up(graph: Graph, scheduling: Scheduling, limit: int, shared: bool) -> None:
    if scheduling.scheduler == "latency-hiding":
        scheduling = Scheduling(channels=scheduling.channels, gathers=limit)
    timeline = run(build(graph), scheduling=scheduling, shared=shared)
    parts = timeline.breakdown
    assert parts.total == pytest.approx(timeline.duration)
    assert sum(each.exposed for each in timeline.groups) == pytest.approx(parts.exposed_communication)
    assert sum(each.busy for each in timeline.groups) == pytest.approx(timeline.communication_busy)
    assert all(-1e-9 <= each.exposed <= each.busy + 1e-9 for each in timeline.groups)
    lanes: dict[int, list[Span]] = {}
    for span in spans(timeline):
        lanes.setdefault(span.channel, []).append(span)
    for lane in lanes.values():
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(lane))


@settings(deadline=None, max_examples=50)
@given(STEPS)
def test_schedulers_are_in_order(graph: Graph) -> None:
    """What overlaps nothing is slowest, what ignores the data is fastest."""
    body = build(graph)
    serial, program, hiding, ideal = (run(body, scheduling=Scheduling(scheduler=name)).duration for name in SCHEDULERS)  # type: ignore[arg-type]
    assert ideal <= min(program, hiding) + 1e-9
    assert max(program, hiding) <= serial + 1e-9


def test_groups_of_one_name_are_told_apart() -> None:
    """Groups that print alike but hold other devices are other groups: each has its own time."""
    first, second = exchange([0], [1], 4), exchange([1], [2], 3)
    assert first.collective is not None
    assert second.collective is not None
    tables = (((0, 1), (2, 3)), ((0, 3), (1, 2)))
    steps = [
        replace(step, geometry=replace(step.collective, group=replace(step.collective.group, table=table)))
        for step, table in zip((first, second), tables, strict=True)
        if step.collective is not None
    ]
    found = run(schedule(steps)).groups
    assert [(str(each.group), each.group.table, each.busy) for each in found] == [
        ("listed 2+2", tables[0], 4), ("listed 2+2", tables[1], 3)
    ]  # fmt: skip
