"""Collectives by hand: rings inside and across nodes, direct exchange, a torus; and what must hold for any of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import UnsupportedError
from meshcast.base.mesh import Group
from meshcast.hardware import TEXTBOOK, Cluster, load_cluster
from meshcast.network import CollectivePlan, plan_collective, spread_over_levels
from meshcast.network.slices import SliceLine
from meshcast.workload.graph import Collective
from tests.network.clusters import FABRIC, NODE, TORUS, TWO_LEVELS, cluster

S = 1e9
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute", "collective_broadcast")


def collective(kind: str, *dims: tuple[int, int], size: float = S) -> Collective:
    return Collective(kind=kind, group=Group(dims=dims), input_bytes=int(size), output_bytes=int(size))


def seconds(kind: str, *dims: tuple[int, int], on: Cluster = TWO_LEVELS, size: float = S) -> float:
    return plan_collective(collective(kind, *dims, size=size), on).seconds


def test_all_gather_of_four_inside_a_node() -> None:
    """3/4 of the buffer through a port of 100 GB/s, then one step and three messages to post."""
    answer = plan_collective(collective("all_gather", (4, 1)), TWO_LEVELS)
    assert answer.bandwidth_s == pytest.approx(0.75 * S / 100e9)
    assert answer.latency_s == pytest.approx(1e-6 + 3 * TEXTBOOK.post_s)
    assert (answer.algorithm, answer.level) == ("direct", "node")


def test_a_ring_has_its_steps() -> None:
    ring = cluster(replace(NODE, topology="ring", links=2))
    answer = plan_collective(collective("all_gather", (4, 1)), ring, algorithm="hierarchical")
    assert answer.latency_s == pytest.approx(3e-6)
    assert answer.bandwidth_s == pytest.approx(0.75 * S / 200e9)
    both_ways = plan_collective(collective("all_gather", (4, 1)), ring)
    assert both_ways.algorithm == "bidirectional-ring"
    assert both_ways.latency_s == pytest.approx(2e-6)
    assert both_ways.bandwidth_s == pytest.approx(answer.bandwidth_s)


def test_all_reduce_is_two_all_gathers() -> None:
    for dims in ((4, 1), (16, 1), (4, 8)):
        assert seconds("all_reduce", dims) == pytest.approx(2 * seconds("all_gather", dims))
        assert seconds("reduce_scatter", dims) == seconds("all_gather", dims)


def test_across_nodes_the_slowest_level_bounds() -> None:
    """16 devices in 2 nodes: inside 7/8 S / 100 GB/s, outside S/8 * 1/2 / 10 GB/s; the first is longer."""
    answer = plan_collective(collective("all_gather", (16, 1)), TWO_LEVELS)
    assert answer.bandwidth_s == pytest.approx(max(7 / 8 * S / 100e9, S / 8 / 2 / 10e9))
    assert answer.level == "node"
    assert plan_collective(collective("all_gather", (16, 8)), TWO_LEVELS).bandwidth_s == pytest.approx(
        15 / 16 * S / 10e9
    )


def test_all_to_all_sends_its_share_to_every_member() -> None:
    """16 devices in 2 nodes: half the buffer leaves the node at 10 GB/s, 7/16 stay inside."""
    answer = plan_collective(collective("all_to_all", (16, 1)), TWO_LEVELS)
    assert answer.bandwidth_s == pytest.approx(0.5 * S / 10e9)
    assert answer.level == "fabric"
    assert plan_collective(collective("all_to_all", (4, 1)), TWO_LEVELS).bandwidth_s == pytest.approx(0.75 * S / 100e9)


def test_a_permutation_sends_all_of_it_once() -> None:
    assert seconds("collective_permute", (2, 1)) == pytest.approx(S / 100e9 + 1e-6)
    assert seconds("collective_permute", (2, 8)) == pytest.approx(S / 10e9 + 5e-6)


def test_a_broadcast_goes_down_a_tree() -> None:
    assert seconds("collective_broadcast", (8, 1)) == pytest.approx(S / 100e9 + 3 * 1e-6)


def test_a_torus_uses_both_directions_of_each_dimension_it_spans() -> None:
    torus = cluster(TORUS)
    in_rows = replace(collective("all_gather", (16, 1)), group=Group(dims=((16, 1),), devices=256))
    row = plan_collective(in_rows, torus)
    assert row.bandwidth_s == pytest.approx(15 / 16 * S / 100e9)
    whole = plan_collective(collective("all_gather", (256, 1)), torus)
    assert whole.bandwidth_s == pytest.approx(255 / 256 * S / 200e9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_is_free(kind: str) -> None:
    assert seconds(kind, (1, 1)) == 0.0


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="gossip"):
        seconds("gossip", (4, 1))


def spread(*dims: tuple[int, int], on: Cluster = TWO_LEVELS) -> list[tuple[str, int]]:
    return [(at.level.name, at.parts) for at in spread_over_levels(Group(dims=dims), on)]


def test_groups_spread_over_levels() -> None:
    assert spread((8, 1)) == [("node", 8)]  # tensor parallel inside a node
    assert spread((16, 8)) == [("fabric", 16)]  # data parallel: one of each node
    assert spread((64, 1)) == [("node", 8), ("fabric", 8)]
    assert spread((4, 2)) == [("node", 4)]  # every other device of a node
    assert spread((8, 2)) == [("node", 4), ("fabric", 2)]
    assert spread((4, 64), (2, 1)) == [("node", 2), ("fabric", 4)]
    assert spread((1, 1)) == []


def test_a_group_of_131072_devices() -> None:
    assert spread((131072, 1)) == [("node", 8), ("fabric", 16384)]
    assert spread((512, 256), (256, 1)) == [("node", 8), ("fabric", 16384)]
    assert spread((16384, 8)) == [("fabric", 16384)]
    three = cluster(NODE, replace(FABRIC, name="rail", size=1024), replace(FABRIC, name="spine", latency_s=1e-5))
    assert spread((131072, 1), on=three) == [("node", 8), ("rail", 128), ("spine", 128)]


DIMS = st.lists(st.tuples(st.sampled_from([2, 4, 8, 16]), st.sampled_from([1, 2, 8, 64])), min_size=1, max_size=2)
SIZES = st.floats(1, 1e10)
ONE_DIM = st.tuples(st.integers(2, 512), st.sampled_from([1, 2, 8, 64]))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(KINDS), ONE_DIM, SIZES, st.floats(1, 8), st.floats(1, 8))
def test_more_bandwidth_is_never_slower(
    kind: str, dim: tuple[int, int], size: float, node: float, fabric: float
) -> None:
    faster = cluster(
        replace(NODE, link_bandwidth=node * NODE.link_bandwidth),
        replace(FABRIC, link_bandwidth=fabric * FABRIC.link_bandwidth),
    )
    assert seconds(kind, dim, on=faster, size=size) <= seconds(kind, dim, size=size) * (1 + 1e-12)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(KINDS), ONE_DIM, SIZES)
def test_no_collective_beats_its_bandwidth_bound(kind: str, dim: tuple[int, int], size: float) -> None:
    """What a device must send, over all its ports at once."""
    op = collective(kind, dim, size=size)
    ports = sum(at.level.bandwidth for at in spread_over_levels(op.group, TWO_LEVELS))
    assert plan_collective(op, TWO_LEVELS).seconds >= op.sent_bytes / ports


@settings(deadline=None, max_examples=40)
@given(ONE_DIM)
def test_levels_join_the_whole_group(dim: tuple[int, int]) -> None:
    levels = spread_over_levels(Group(dims=(dim,)), TWO_LEVELS)
    assert levels[0].below == 1
    assert levels[-1].within == dim[0]
    for at in levels:
        assert at.below * at.parts <= at.within < dim[0] + 1
    if dim[0] & (dim[0] - 1) == 0:
        assert all(at.below * at.parts == at.within for at in levels)


def placed(kind: str, size: int, devices: int) -> CollectivePlan:
    group = Group(dims=((size, 1),), devices=devices)
    return plan_collective(Collective(kind=kind, group=group, input_bytes=int(S), output_bytes=int(S)), TWO_LEVELS)


def test_the_group_that_lies_worst_counts() -> None:
    """Groups of 6 on nodes of 8: {0..5} is inside one, {6..11} has 2 members in the first and 4 in the second.

    The 2 must fetch 4/6 of the buffer from the other node, half of that each.
    """
    answer = placed("all_gather", 6, devices=12)
    assert answer.level == "fabric"
    assert answer.bandwidth_s == pytest.approx(S * 4 / 6 / 2 / 10e9)
    assert placed("all_to_all", 6, devices=12).bandwidth_s == pytest.approx(S * 4 / 6 / 10e9)
    assert placed("collective_permute", 6, devices=12).bandwidth_s == pytest.approx(S / 10e9)
    assert placed("all_gather", 6, devices=6).level == "node"
    assert placed("all_gather", 4, devices=12).level == "node"


def test_a_member_alone_in_its_node_has_one_port() -> None:
    """9 devices, 8 of them in a node: the ninth receives 8/9 of the buffer over its own port."""
    answer = plan_collective(collective("all_gather", (9, 1)), TWO_LEVELS)
    assert answer.bandwidth_s == pytest.approx(S * 8 / 9 / 10e9)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(KINDS), st.integers(2, 24), st.integers(1, 6), st.sampled_from([1, 2, 3, 8]))
def test_no_group_is_slower_than_all_of_them(kind: str, size: int, groups: int, stride: int) -> None:
    """Every group timed at its own place, as if it were the only one."""
    group = Group(dims=((size, stride),), devices=size * groups * stride)
    together = plan_collective(replace(collective(kind, (1, 1)), group=group), TWO_LEVELS).seconds
    alone = [replace(group, first=int(start), devices=0) for start in group.starts()]
    assert len(alone) == groups * stride
    times = [plan_collective(replace(collective(kind, (1, 1)), group=one), TWO_LEVELS).seconds for one in alone]
    assert together >= max(times) * (1 - 1e-12)


def test_all_places_of_131072_devices_are_looked_at_once() -> None:
    """Groups of 3 among 131072: one in four crosses a node's border."""
    found = spread_over_levels(Group(dims=((3, 1),), devices=131072), TWO_LEVELS)
    assert [(at.level.name, at.parts, at.below, at.within) for at in found] == [("node", 3, 1, 3), ("fabric", 2, 1, 3)]


SHAPES = (
    (4,),
    (5,),
    (16,),
    (16, 16),
    (8, 16),
    (3, 5),
    (4, 4, 4),
    (16, 16, 16),
    (16, 20, 28),
    (8, 4, 6),
    (2, 2),
    (2, 8),
)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_torus_exchanges_no_faster_than_its_bisection(shape: tuple[int, ...]) -> None:
    """Across the narrowest halving, a cut through the longest side in two places, each half sends its messages."""
    devices = math.prod(shape)
    torus = cluster(replace(TORUS, size=devices, dims=shape, links=2 * len(shape)))
    answer = plan_collective(collective("all_to_all", (devices, 1)), torus)
    for side in shape:
        left, right = side // 2 * devices // side, (side - side // 2) * devices // side
        links = (2 if side > 2 else 1) * devices // side
        assert answer.bandwidth_s >= left * right * S / devices / (links * TORUS.link_bandwidth) * (1 - 1e-12)
    longest = max(shape)
    if longest % 2 == 0 and longest > 2:
        assert answer.bandwidth_s == pytest.approx(S * longest / 8 / TORUS.link_bandwidth)


@pytest.mark.parametrize(("name", "devices", "milliseconds"), [("tpu-v4-pod", 4096, 40), ("tpu-v5e-pod", 256, 40)])
def test_an_exchange_over_a_whole_pod(name: str, devices: int, milliseconds: float) -> None:
    """Sides of 16, 50 GB/s a link: 1 GB * 16 / 8 / 50 GB/s, of which links reach their share."""
    machine = load_cluster(name).for_devices(devices)
    answer = plan_collective(collective("all_to_all", (devices, 1)), machine)
    assert answer.bandwidth_s * 1e3 * machine.levels[0].link.share == pytest.approx(milliseconds)


@given(st.integers(1, 40))
def test_mean_hops_are_those_of_a_ring(side: int) -> None:
    hops = sum(min(i, side - i) for i in range(side)) / side
    line = SliceLine(side=0, length=side, closed=True)
    assert line.crossing == pytest.approx(hops / line.ways)


def test_several_rings_side_by_side() -> None:
    """Six links a device, as in a DGX-1: three rings both ways; an exchange takes 2 hops of 8 devices on average."""
    rings = cluster(replace(NODE, topology="ring", links=6, link_bandwidth=25e9))
    gather = plan_collective(collective("all_gather", (8, 1)), rings)
    assert gather.bandwidth_s == pytest.approx(7 / 8 * S / 150e9)
    exchange = plan_collective(collective("all_to_all", (8, 1)), rings)
    assert exchange.bandwidth_s == pytest.approx(S * 2 / 150e9)


def test_the_catalogue_answers_for_every_kind() -> None:
    for name in ("dgx-h100", "tpu-v5p-pod", "gb200-nvl72"):
        machine = load_cluster(name).for_devices(64)
        assert all(seconds(kind, (64, 1), on=machine) > 0 for kind in KINDS)
