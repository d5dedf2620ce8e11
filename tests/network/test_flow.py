"""Flows that share links: alone they are the closed form, together they share by hand-computable rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InfeasibleError, UnsupportedError, UsageError
from meshcast.base.mesh import Group
from meshcast.hardware import Cluster, Conditions, LinkCondition, NetworkLevel
from meshcast.network import spread_over_levels
from meshcast.network.fabric import Routing, fabric_of
from meshcast.network.flow import FlowJob, FlowResult, FlowTraffic, SharedFabric, simulate_flows
from meshcast.network.flow.patterns import _tree_edges
from meshcast.network.plan import AlgorithmName, CollectivePlan, Primitive
from tests.network.clusters import FABRIC, NODE, TORUS, TWO_LEVELS, cluster
from tests.network.plans import hierarchical, plan, stage, whole
from tests.network.test_fabric import DRAGONFLY, FAT_TREE, FULL, PCIE, RAILS, RING

ALL: tuple[AlgorithmName, ...] = (
    "ring", "bidirectional-ring", "double-binary-tree", "halving-doubling", "direct", "one-shot", "in-network",
)  # fmt: skip
SWITCHED = (NODE, replace(FAT_TREE, size=8, radix=32))


def run(on: Cluster, devices: int, *traffic: FlowTraffic, conditions: Conditions | None = None) -> FlowResult:
    fabric = fabric_of(on, devices, conditions or Conditions())
    return simulate_flows(fabric, [FlowJob(name=str(number), traffic=one) for number, one in enumerate(traffic)])


@pytest.mark.parametrize("primitive", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"])
@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("level", SWITCHED, ids=lambda level: level.topology)
@pytest.mark.parametrize("members", [2, 5, 8])
def test_alone_on_switches_every_algorithm_is_the_closed_form(
    primitive: Primitive, algorithm: AlgorithmName, level: NetworkLevel, members: int
) -> None:
    for pipelined in (True, False):
        made = plan(
            stage(level, parts=members, algorithm=algorithm, primitive=primitive), pipelined=pipelined, start_s=2e-6
        )
        assert run(cluster(level), 8, whole(made, members)).seconds == pytest.approx(made.seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("level", "devices", "algorithm"),
    [
        (RING, 8, "ring"),
        (RING, 8, "bidirectional-ring"),
        (replace(RING, links=4), 7, "bidirectional-ring"),
        (replace(RING, links=1), 8, "ring"),
        (FULL, 8, "ring"),
        (FULL, 8, "direct"),
        (FULL, 8, "one-shot"),
        (FULL, 8, "double-binary-tree"),
        (FULL, 8, "halving-doubling"),
        (RING, 8, "double-binary-tree"),
        (TORUS, 256, "torus-rings"),
        (TORUS, 256, "ring"),
        (replace(TORUS, dims=(4, 4, 4), size=64, links=6), 64, "torus-rings"),
        (replace(DRAGONFLY, dims=(8, 1, 1), size=8), 8, "ring"),
        (replace(PCIE, radix=8, sockets=1, socket_bandwidth=0.0), 8, "ring"),
    ],
)
@pytest.mark.parametrize("primitive", ["all_reduce", "all_gather"])
def test_alone_on_other_topologies_too(
    level: NetworkLevel, devices: int, algorithm: AlgorithmName, primitive: Primitive
) -> None:
    made = plan(stage(level, parts=devices, algorithm=algorithm, primitive=primitive))
    assert run(cluster(level), devices, whole(made, devices)).seconds == pytest.approx(made.seconds, rel=1e-9)


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize("on", [TWO_LEVELS, RAILS], ids=["switch", "rails"])
def test_alone_over_two_levels(on: Cluster, pipelined: bool) -> None:
    made = hierarchical(on, 64, pipelined=pipelined)
    assert run(on, 64, whole(made, 64)).seconds == pytest.approx(made.seconds, rel=1e-9)
    tensor = plan(stage(NODE, parts=8))
    data = plan(stage(on.levels[1], parts=8))
    for group, one in ((Group(dims=((8, 1),), devices=64), tensor), (Group(dims=((8, 8),), devices=64), data)):
        assert run(on, 64, FlowTraffic.of(one, group)).seconds == pytest.approx(one.seconds, rel=1e-9)


def test_all_to_all_over_two_levels_and_around_a_torus() -> None:
    """On a torus each link along a side of k carries `message * n * floor(k^2 / 4) / k / 2`."""
    message = 1e5
    node, fabric = (stage(level, parts=8, algorithm="direct", primitive="all_to_all", below=below, sent=message * peers)
                    for level, below, peers in ((NODE, 1, 7), (FABRIC, 8, 56)))  # fmt: skip
    made = plan(node, fabric)
    assert run(TWO_LEVELS, 64, whole(made, 64)).seconds == pytest.approx(made.seconds, rel=1e-9)
    level = replace(TORUS, dims=(4, 6), size=24)
    made = plan(stage(level, parts=24, algorithm="direct", primitive="all_to_all", sent=message * 23))
    answer = run(cluster(level), 24, whole(made, 24))
    assert answer.seconds == pytest.approx(made.latency_s + message * 24 * (36 // 4 / 6) / 2 / 50e9, rel=1e-9)


def test_a_permutation_goes_to_the_next_member_or_to_whom_it_is_told() -> None:
    made = plan(stage(FABRIC, parts=2, below=8, primitive="permute", algorithm="direct", sent=1e8))
    around = FlowTraffic(plan=made, groups=np.arange(16)[None, :])
    assert run(TWO_LEVELS, 16, around).seconds == pytest.approx(made.seconds, rel=1e-9)
    into_one = replace(around, pairs=((0, 15), (1, 15)))
    assert run(TWO_LEVELS, 16, into_one).seconds == pytest.approx(made.latency_s + 2e8 / 10e9, rel=1e-9)


def test_two_trees_exchange_leaves_and_inner_nodes() -> None:
    child, parent = _tree_edges(8)
    assert list(child) == [1, 2, 3, 4, 5, 6, 7]
    assert list(parent) == [2, 4, 2, 0, 6, 4, 6]
    assert len(set(parent)) == 4


def test_two_on_the_same_links_share_them_and_two_on_others_do_not() -> None:
    made = plan(stage(replace(NODE, latency_s=0.0), parts=4))
    first, second = (FlowTraffic(plan=made, groups=np.arange(start, start + 4)[None, :]) for start in (0, 4))
    assert run(TWO_LEVELS, 8, first, second).seconds == pytest.approx(made.seconds, rel=1e-9)
    both = run(TWO_LEVELS, 8, first, first)
    assert both.seconds == pytest.approx(2 * made.seconds, rel=1e-9)
    assert both.jobs[0].end_s == both.jobs[1].end_s


def test_a_second_job_that_starts_later() -> None:
    """1 s of bytes each. From 0.5 s on they share: the first has 0.5 s left and takes 1 s, the second 0.5 s more."""
    made = plan(stage(replace(NODE, latency_s=0.0), parts=8, sent=100e9))
    traffic = whole(made, 8)
    fabric = fabric_of(TWO_LEVELS, 8)
    result = simulate_flows(
        fabric, [FlowJob(name="a", traffic=traffic), FlowJob(name="b", traffic=traffic, start_s=0.5)]
    )
    assert (result.job("a").end_s, result.job("b").end_s) == (pytest.approx(1.5), pytest.approx(2.0))
    assert result.job("b").alone_s == pytest.approx(1.0)
    assert result.levels[0].most == pytest.approx(1.0)
    assert result.sent.sum() == pytest.approx(2 * 2 * 8 * 100e9)


def test_jobs_in_a_row_and_repeated() -> None:
    made = plan(stage(NODE, parts=8), start_s=1e-6)
    traffic = whole(made, 8)
    jobs = [FlowJob(name="a", traffic=traffic, repeats=3), FlowJob(name="b", traffic=traffic, after=("a",))]
    result = simulate_flows(fabric_of(TWO_LEVELS, 8), jobs)
    assert result.job("b").start_s == result.job("a").end_s == pytest.approx(3 * made.seconds, rel=1e-9)
    assert result.seconds == pytest.approx(4 * made.seconds, rel=1e-9)


def test_tensor_parallel_inside_and_data_parallel_across_contend_only_where_they_meet() -> None:
    """A data-parallel ring over the nodes does not touch NVLink; a hierarchical one does, at its own slow pace."""
    tensor = FlowTraffic.of(plan(stage(NODE, parts=8, sent=1e9)), Group(dims=((8, 1),), devices=64))
    data = FlowTraffic.of(plan(stage(FABRIC, parts=8, sent=1e8)), Group(dims=((8, 8),), devices=64))
    apart = run(TWO_LEVELS, 64, tensor, data)
    assert [job.seconds for job in apart.jobs] == pytest.approx([job.alone_s for job in apart.jobs], rel=1e-9)
    everywhere = whole(hierarchical(TWO_LEVELS, 64, sent=1e9), 64)
    met = run(TWO_LEVELS, 64, tensor, everywhere)
    assert met.jobs[0].seconds > 1.2 * met.jobs[0].alone_s


def test_a_latency_bound_job_leaves_the_links_to_the_other() -> None:
    """Tiny messages: a step is 1 us of waiting for 1 ns of bytes. The large job hardly notices, nor does the small."""
    small = whole(plan(stage(NODE, parts=8, sent=7 * 100.0)), 8)
    large = whole(plan(stage(NODE, parts=8, sent=1e6)), 8)
    result = run(TWO_LEVELS, 8, large, small)
    assert all(job.seconds == pytest.approx(job.alone_s, rel=0.01) for job in result.jobs)


def test_oversubscription_slows_what_crosses_and_nothing_else() -> None:
    over = cluster(replace(FAT_TREE, radix=16, oversubscription=3.0))  # 12 devices a leaf
    exchange = plan(stage(over.levels[0], parts=48, algorithm="direct", primitive="all_to_all", sent=47e6))
    # 36 of a device's 47 messages leave its leaf, where a third of the rate leaves.
    expected = exchange.latency_s + 3 * 36e6 / 10e9
    assert run(over, 48, whole(exchange, 48)).seconds == pytest.approx(expected, rel=1e-9)
    ring = plan(stage(over.levels[0], parts=48))
    assert run(over, 48, whole(ring, 48)).seconds == pytest.approx(ring.seconds, rel=1e-9)


def test_hashed_flows_collide_and_spread_ones_do_not() -> None:
    level = replace(FAT_TREE, radix=16)
    made = plan(stage(level, parts=32, algorithm="halving-doubling"), pipelined=False)
    seconds = [
        simulate_flows(
            fabric_of(cluster(level), 32, routing=routing), [FlowJob(name="a", traffic=whole(made, 32))]
        ).seconds
        for routing in (Routing(), Routing(spreading="hash"))
    ]
    assert seconds[0] == pytest.approx(made.seconds, rel=1e-9)
    assert seconds[1] > 1.1 * seconds[0]


def test_minimal_routes_crowd_where_valiant_s_do_not() -> None:
    """Each router's four devices send to the next router: one link between the two, or many by way of others."""
    made = plan(stage(DRAGONFLY, parts=288, primitive="permute", algorithm="direct"))
    shift = FlowTraffic(plan=made, groups=np.arange(288)[None, :], pairs=tuple((i, (i + 4) % 288) for i in range(288)))
    minimal, around, adaptive = (
        SharedFabric(fabric_of(cluster(DRAGONFLY), 288, routing=routing)).alone(shift)
        for routing in (Routing(dragonfly="minimal"), Routing(dragonfly="valiant"), Routing())
    )
    assert minimal == pytest.approx(made.latency_s + 4 * made.bandwidth_s, rel=1e-9)
    assert made.seconds < around < minimal
    assert adaptive == around


def test_a_mesh_has_no_way_around() -> None:
    """Without its closing links a ring's last member sends back over everyone's links: half the rate."""
    line = replace(RING, wrap="never")
    made = plan(stage(line, parts=8))
    assert run(cluster(line), 8, whole(made, 8)).seconds == pytest.approx(
        made.latency_s + 2 * made.bandwidth_s, rel=1e-9
    )


def test_in_network_reduction_crosses_a_spine_once_for_each_leaf() -> None:
    level = replace(FAT_TREE, radix=16, oversubscription=7.0)  # 14 devices a leaf, a seventh of their rate upwards
    made = plan(stage(level, parts=28, algorithm="in-network"))
    assert run(cluster(level), 28, whole(made, 28)).seconds == pytest.approx(made.seconds, rel=1e-9)


@pytest.mark.parametrize("level", [RING, FULL, PCIE, DRAGONFLY], ids=lambda level: level.topology)
def test_in_network_reduction_needs_switches_that_add(level: NetworkLevel) -> None:
    made = plan(stage(level, parts=8, algorithm="in-network"))
    with pytest.raises(UnsupportedError):
        run(cluster(level), 8, whole(made, 8))


def test_a_failed_port_on_the_tree_of_adding_switches() -> None:
    made = plan(stage(NODE, parts=8, algorithm="in-network"))
    conditions = Conditions(links=(LinkCondition(level="node", device=1, share=0.0),))
    with pytest.raises(InfeasibleError, match="switches add"):
        run(TWO_LEVELS, 16, whole(made, 8), conditions=conditions)


def test_rings_along_dimensions_need_dimensions() -> None:
    with pytest.raises(UnsupportedError, match="torus-rings cannot run on level 'node'"):
        run(TWO_LEVELS, 8, whole(plan(stage(NODE, parts=8, algorithm="torus-rings")), 8))


@pytest.mark.parametrize("share", [0.75, 0.5, 0.1])
def test_the_slowest_member_bounds_all(share: float) -> None:
    made = plan(stage(NODE, parts=8))
    conditions = Conditions(links=(LinkCondition(level="node", device=5, share=share),))
    answer = run(TWO_LEVELS, 8, whole(made, 8), conditions=conditions)
    assert answer.seconds == pytest.approx(made.latency_s + made.bandwidth_s / share, rel=1e-9)


def test_groups_that_lie_unevenly_in_their_nodes() -> None:
    """Groups of 6 on nodes of 8: {0..5} is inside a node, {6..11} is 2 here and 4 there; two of each side cross."""
    group = Group(dims=((6, 1),), devices=24)
    made = plan(stage(NODE, parts=6, sent=1e6), stage(FABRIC, parts=2, below=2, sent=1e8))
    fabric = fabric_of(TWO_LEVELS, 24)
    result = simulate_flows(fabric, [FlowJob(name="a", traffic=FlowTraffic.of(made, group))])
    assert result.seconds == pytest.approx(made.seconds, rel=1e-9)
    crossing = np.flatnonzero((fabric.links.level == 1) & (result.sent > 0))
    ports = {int(node) for node in (*fabric.links.source[crossing], *fabric.links.target[crossing]) if node < 24}
    assert ports == {6, 7, 8, 9} | {12, 13, 16, 17}


def test_rates_of_what_is_under_way_at_once() -> None:
    shared = SharedFabric(fabric_of(TWO_LEVELS, 64))
    tensor = FlowTraffic.of(plan(stage(replace(NODE, latency_s=0.0), parts=8)), Group(dims=((8, 1),), devices=64))
    data = FlowTraffic.of(plan(stage(FABRIC, parts=8)), Group(dims=((8, 8),), devices=64))
    alone = [1 / shared.alone(traffic) for traffic in (tensor, data)]
    assert shared.rates([tensor, data]) == pytest.approx(alone)
    assert shared.rates([tensor, tensor]) == pytest.approx([alone[0] / 2] * 2)
    assert shared.rates([tensor]) == pytest.approx(alone[:1])
    assert shared.rates([]) == ()
    assert shared.rates([whole(CollectivePlan(kind="all_reduce", algorithm="none"), 8)]) == (float("inf"),)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ((("a", ()), ("a", ())), "two jobs are called 'a'"),
        ((("a", ("b",)),), "waits for 'b'"),
        ((("a", ("b",)), ("b", ("a",))), "wait for each other"),
    ],
)
def test_jobs_that_cannot_be(jobs: tuple[tuple[str, tuple[str, ...]], ...], message: str) -> None:
    traffic = whole(plan(stage(NODE, parts=8)), 8)
    made = [FlowJob(name=name, traffic=traffic, after=after) for name, after in jobs]
    with pytest.raises(UsageError, match=message):
        simulate_flows(fabric_of(TWO_LEVELS, 8), made)


def test_devices_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="no device 8 among the 8"):
        run(TWO_LEVELS, 8, whole(plan(stage(FABRIC, parts=16)), 16))
    with pytest.raises(UsageError, match="more than once"):
        FlowTraffic(plan=plan(), groups=np.array([[0, 1], [1, 2]]))


TOPOLOGIES = st.sampled_from(
    [(TWO_LEVELS, 64), (RAILS, 64), (cluster(NODE, DRAGONFLY), 64), (cluster(PCIE, FABRIC), 64)]
)
STRIDES = st.sampled_from([((8, 1),), ((8, 8),), ((64, 1),), ((4, 2),), ((4, 16),)])
JOBS = st.lists(st.tuples(STRIDES, st.floats(1e3, 1e9), st.floats(0.0, 1e-2)), min_size=1, max_size=4)


def traffic_of(on: Cluster, devices: int, dims: tuple[tuple[int, int], ...], sent: float) -> FlowTraffic:
    """A ring in each level that the group spans."""
    group = Group(dims=dims, devices=devices)
    stages = [
        stage(at.level, parts=at.parts, below=at.below, sent=sent / at.below) for at in spread_over_levels(group, on)
    ]
    return FlowTraffic.of(plan(*stages), group)


def simulated(on: Cluster, devices: int, jobs: list[tuple[tuple[tuple[int, int], ...], float, float]],
              conditions: Conditions | None = None) -> FlowResult:  # fmt: skip
    made = [
        FlowJob(name=str(number), traffic=traffic_of(on, devices, dims, sent), start_s=start)
        for number, (dims, sent, start) in enumerate(jobs)
    ]
    return simulate_flows(fabric_of(on, devices, conditions or Conditions()), made)


@settings(max_examples=40, deadline=None)
@given(topology=TOPOLOGIES, jobs=JOBS)
def test_never_faster_than_alone_nor_than_the_links_allow(
    topology: tuple[Cluster, int], jobs: list[tuple[tuple[tuple[int, int], ...], float, float]]
) -> None:
    result = simulated(*topology, jobs)
    for job in result.jobs:
        assert job.seconds >= job.alone_s * (1 - 1e-9)
    assert max(level.most for level in result.levels) <= 1 + 1e-9
    assert simulated(*topology, jobs).jobs == result.jobs


@settings(max_examples=25, deadline=None)
@given(topology=TOPOLOGIES, jobs=JOBS.filter(lambda jobs: len(jobs) == 1), factor=st.floats(1.0, 8.0))
def test_more_bandwidth_is_never_slower_and_less_never_faster(
    topology: tuple[Cluster, int], jobs: list[tuple[tuple[tuple[int, int], ...], float, float]], factor: float
) -> None:
    on, devices = topology
    wider = replace(on, levels=tuple(replace(at, link_bandwidth=factor * at.link_bandwidth) for at in on.levels))
    usual = simulated(on, devices, jobs).seconds
    assert simulated(wider, devices, jobs).seconds <= usual * (1 + 1e-9)
    for level in on.levels:
        broken = Conditions(links=(LinkCondition(level=level.name, device=9, share=0.0),))
        if level is on.levels[0]:  # a device without its outer port has no way out of its node but through others
            assert simulated(on, devices, jobs, broken).seconds >= usual * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(topology=st.sampled_from([(TWO_LEVELS, 64), (RAILS, 64)]), dims=STRIDES, sent=st.floats(1e3, 1e9))
def test_groups_that_lie_alike_take_equally_long(
    topology: tuple[Cluster, int], dims: tuple[tuple[int, int], ...], sent: float
) -> None:
    on, devices = topology
    traffic = traffic_of(on, devices, dims, sent)
    together = SharedFabric(fabric_of(on, devices)).alone(traffic)
    each = [
        SharedFabric(fabric_of(on, devices)).alone(replace(traffic, groups=traffic.groups[row : row + 1]))
        for row in range(len(traffic.groups))
    ]
    assert max(each) == pytest.approx(min(each), rel=1e-9)
    assert together >= max(each) * (1 - 1e-9)
