"""Algorithms by hand: what each sends, in how many steps, and what technologies and protocols add."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.base.mesh import Group
from meshcast.hardware import Cluster, LinkProtocol, LinkTechnology, NetworkLevel, load_cluster
from meshcast.network import CollectivePlan, plan_collective
from meshcast.workload.graph import Collective
from tests.network.clusters import FABRIC, NODE, TORUS, cluster

S = 8e9
LIBRARY = LinkTechnology(
    name="test",
    title="round numbers",
    library="nccl",
    share=0.8,
    start_s=10e-6,
    pair_start_s=4e-6,
    post_s=0.5e-6,
    protocols=(
        LinkProtocol(name="LL", share=0.5, step_s=1e-6, limit=20e9),
        LinkProtocol(name="Simple", step_s=3e-6, chunk_s=1e-6),
    ),
    in_network_share=0.5,
    in_network_start_s=8e-6,
    in_network_members=4,
)
INSIDE = replace(NODE, link=LIBRARY)
OUTSIDE = replace(FABRIC, link=replace(LIBRARY, between_hosts=True, in_network_share=0.0))
TWO = cluster(INSIDE, OUTSIDE)


def plan(
    kind: str,
    size: float,
    count: int,
    on: Cluster,
    *,
    stride: int = 1,
    algorithm: str | None = None,
    protocol: str | None = None,
) -> CollectivePlan:
    group = Group(dims=((count, stride),))
    op = Collective(kind=kind, group=group, input_bytes=int(size), output_bytes=int(size))
    return plan_collective(op, on, algorithm=algorithm, protocol=protocol)


def test_a_ring_of_four_with_the_simple_protocol() -> None:
    """2 * 3 steps of 1 + 3 us, 1.5 S at 80 GB/s, and chunks: 2 sqrt(6 * 1 us * 150 ms)."""
    found = plan("all_reduce", S, 4, TWO, algorithm="ring", protocol="Simple")
    wire = 1.5 * S / 80e9
    assert found.bandwidth_s == pytest.approx(wire)
    assert found.latency_s == pytest.approx(10e-6 + 6 * 4e-6 + 2 * math.sqrt(6 * 1e-6 * wire))
    (stage,) = found.stages
    assert (stage.steps, stage.step_bytes * 6) == (6, pytest.approx(1.5 * S))


def test_low_latency_has_half_the_rate_up_to_its_limit_and_hands_nothing_over() -> None:
    found = plan("all_gather", 4096, 4, TWO, algorithm="ring", protocol="LL")
    assert found.seconds == pytest.approx(10e-6 + 3 * 2e-6 + 0.75 * 4096 / 20e9)
    slow = cluster(replace(INSIDE, link_bandwidth=10e9))
    assert plan("all_gather", S, 4, slow, algorithm="ring", protocol="LL").bandwidth_s == pytest.approx(0.75 * S / 4e9)


def test_a_protocol_may_take_longer_to_start() -> None:
    later = replace(LIBRARY, protocols=tuple(replace(each, start_s=7e-6) for each in LIBRARY.protocols))
    usual, found = (
        plan("all_gather", 4096, 4, on, algorithm="ring", protocol="LL")
        for on in (TWO, cluster(replace(INSIDE, link=later)))
    )
    assert found.start_s == pytest.approx(usual.start_s + 7e-6)


def test_a_ring_through_two_nodes() -> None:
    """Of 30 steps 2 cross; each of 8 rings carries 1/8 of what all pass on, 15/8 S, over a card."""
    found = plan("all_reduce", S, 16, TWO, algorithm="ring", protocol="Simple")
    inside, outside = found.stages
    assert (inside.steps, outside.steps) == (28, 2)
    assert inside.bandwidth_s == pytest.approx(1.875 * S / 80e9)
    assert outside.bandwidth_s == pytest.approx(1.875 * S / 8 / 8e9)


def test_steps_of_a_ring_across_hosts_are_posted_and_have_a_plateau() -> None:
    """Inside, 28 steps of 1 + 3 us; each takes three posts at least, and all of them twice where rings have a plateau."""
    plain = plan("all_reduce", S, 16, TWO, algorithm="ring", protocol="Simple")
    assert plain.stages[0].alpha_s == pytest.approx(4e-6)
    busy = replace(OUTSIDE, link=replace(OUTSIDE.link, post_s=2e-6))
    posted = plan("all_reduce", S, 16, cluster(INSIDE, busy), algorithm="ring", protocol="Simple")
    assert posted.stages[0].alpha_s == pytest.approx(3 * 2e-6)
    flat = replace(INSIDE, link=replace(LIBRARY, ring_plateau=2.0))
    twice = plan("all_reduce", S, 16, cluster(flat, OUTSIDE), algorithm="ring", protocol="Simple")
    assert twice.stages[0].alpha_s == pytest.approx(2 * 4e-6)
    inside = plan("all_reduce", S, 8, cluster(flat, OUTSIDE), algorithm="ring", protocol="Simple")
    gathered = plan("all_gather", S, 16, cluster(flat, OUTSIDE), algorithm="ring", protocol="Simple")
    assert gathered.stages[0].alpha_s == pytest.approx(4e-6)
    assert inside.latency_s == pytest.approx(
        plan("all_reduce", S, 8, TWO, algorithm="ring", protocol="Simple").latency_s
    )


def test_low_latency_through_hosts_is_bound_by_their_memory() -> None:
    """39 GB/s for two hosts and 20.4 for more, of which each of 8 cards carries an eighth."""
    fast = cluster(
        replace(INSIDE, link=replace(LIBRARY, protocols=(LinkProtocol(name="LL"),))),
        replace(OUTSIDE, link=replace(OUTSIDE.link, protocols=(LinkProtocol(name="LL"),)), link_bandwidth=100e9),
    )
    two, four = (plan("all_gather", S, n, fast, algorithm="ring", protocol="LL") for n in (16, 32))
    assert [stage.rate for stage in two.stages] == [pytest.approx(39e9), pytest.approx(39e9 / 8)]
    assert [stage.rate for stage in four.stages] == [pytest.approx(20.4e9), pytest.approx(20.4e9 / 8)]


def test_trees_of_many_hosts_reach_less_than_rings_and_least_with_middle_sizes() -> None:
    """92 % of 85 % of 8 GB/s; a MiB takes twice its time on the wire, a GiB no more than its chunks."""
    few, many = (plan("all_reduce", S, n, TWO, algorithm="tree", protocol="Simple").stages[-1] for n in (24, 32))
    assert few.rate == pytest.approx(8e9)
    assert many.rate == pytest.approx(8e9 * 0.92 * 0.85)
    wire = 2 * 2**20 / 8 / many.rate
    small = plan("all_reduce", 2**20, 32, TWO, algorithm="tree", protocol="Simple")
    assert small.stages[-1].bandwidth_s == pytest.approx(wire)
    assert small.stages[-1].latency_s == pytest.approx(4 * 8e-6 + max(wire, 2 * math.sqrt(4 * 1e-6 * wire)))


def test_trees_of_every_member_among_hosts_of_one_each() -> None:
    """64 hosts: 6 partners at 8 us / 3.5, 2.8 us for each member, and three quarters of 8 GB/s; chunks through 6 steps."""
    size = 2**20
    found = plan("all_gather", size, 64, TWO, stride=8, algorithm="pat")
    wire = 63 / 64 * size / (0.75 * 8e9)
    assert found.bandwidth_s == pytest.approx(wire)
    assert found.latency_s == pytest.approx(8e-6 + 6 * 8e-6 / 3.5 + 64 * 2.8e-6 + 2 * math.sqrt(6 * 1e-6 * wire))
    assert plan("all_gather", size, 64, TWO, stride=8).algorithm == "pat"
    assert plan("reduce_scatter", 1e12, 64, TWO, stride=8).algorithm == "ring"
    with pytest.raises(UsageError, match="does not apply"):  # two of each host
        plan("all_gather", size, 64, TWO, stride=4, algorithm="pat")
    with pytest.raises(UsageError, match="does not apply"):
        plan("all_reduce", size, 64, TWO, stride=8, algorithm="pat")


def test_two_trees_send_the_buffer_once_between_two_hosts_and_twice_between_more() -> None:
    two, three, four = (
        plan("all_reduce", S, n, TWO, algorithm="tree", protocol="Simple").stages[-1] for n in (16, 24, 32)
    )
    assert (two.steps, two.steps * two.step_bytes) == (2, pytest.approx(S / 8))
    assert (three.steps, three.steps * three.step_bytes) == (4, pytest.approx(1.5 * S / 8))  # nobody above the root
    assert (four.steps, four.steps * four.step_bytes) == (4, pytest.approx(2 * S / 8))


def test_switches_that_add_halve_the_traffic() -> None:
    """S (1 + 1/8) at half of 80 GB/s, two steps and what asking costs; chunks go between 8 members."""
    adding = cluster(replace(INSIDE, in_network_reduction=True))
    found = plan("all_reduce", S, 8, adding, algorithm="nvls")
    wire = 1.125 * S / 40e9
    assert found.bandwidth_s == pytest.approx(wire)
    assert found.latency_s == pytest.approx(10e-6 + 2 * 4e-6 + 8e-6 + 2 * math.sqrt(14 * 1e-6 * wire))
    with pytest.raises(UsageError, match="in-network"):
        plan("all_reduce", S, 8, TWO, algorithm="in-network")
    with pytest.raises(UsageError):  # fewer members than the library asks the switches for
        plan("all_reduce", S, 3, adding, algorithm="in-network")


def test_parts_are_gathered_by_switches_only_where_every_member_is_a_head() -> None:
    link = replace(LIBRARY, in_network_heads=4)
    adding = cluster(replace(INSIDE, link=link, in_network_reduction=True))
    assert plan("all_gather", S, 4, adding, algorithm="nvls").algorithm == "in-network"
    with pytest.raises(UsageError, match="does not apply"):
        plan("all_gather", S, 8, adding, algorithm="nvls")
    assert plan("all_reduce", S, 8, adding, algorithm="nvls").algorithm == "in-network"


def test_switches_add_inside_and_trees_join_the_nodes() -> None:
    adding = cluster(replace(INSIDE, in_network_reduction=True), OUTSIDE)
    found = plan("all_reduce", S, 16, adding, algorithm="nvls-tree")
    assert found.algorithm == "in-network + double-binary-tree"
    assert [stage.algorithm for stage in found.stages] == ["in-network", "double-binary-tree"]
    assert found.in_network
    assert not plan("all_reduce", S, 16, adding, algorithm="ring").in_network


def test_trees_between_heads_are_filled_chunk_by_chunk() -> None:
    """4 of 8 members are heads: half of the ports. A hop hands on 16 channels of 64 KiB before the next host begins."""
    bare = replace(LIBRARY, protocols=(LinkProtocol(name="Simple", step_s=3e-6),))  # handing over costs nothing else
    link = replace(bare, in_network_heads=4, in_network_channels=16, in_network_chunk=65536.0)
    outside = replace(OUTSIDE, link=replace(bare, between_hosts=True, in_network_share=0.0))
    adding = cluster(replace(INSIDE, link=link, in_network_reduction=True), outside)
    usual = cluster(replace(INSIDE, link=bare, in_network_reduction=True), outside)
    tree, plain = (plan("all_reduce", S, 32, on, algorithm="nvls-tree").stages[-1] for on in (adding, usual))
    assert tree.rate == pytest.approx(plain.rate / 2)
    # A buffer of less than one round has chunks of 32 KiB, and no more of them than it holds.
    small = 8 * 65536
    tree, plain = (plan("all_reduce", small, 32, on, algorithm="nvls-tree").stages[-1] for on in (adding, usual))
    assert tree.alpha_s - plain.alpha_s == pytest.approx(small / 4 / plain.rate, rel=1e-6)


def test_an_exchange_posts_to_every_peer() -> None:
    """Three peers: one step, two more posts, and chunks among three."""
    found = plan("all_to_all", S, 4, TWO, protocol="Simple")
    wire = 0.75 * S / 80e9
    assert found.seconds == pytest.approx(10e-6 + 4e-6 + 2 * 0.5e-6 + wire + 2 * math.sqrt(3 * 1e-6 * wire))


def test_of_copies_a_node_is_sent_one() -> None:
    """A row for eight random ones of sixteen devices reaches both nodes but for one in 2^8, and 16 (1 - (15/16)^8) devices."""
    group = Group(dims=((16, 1),))
    every, once = (
        plan_collective(
            Collective(kind="all_to_all", group=group, input_bytes=int(S), output_bytes=int(S), copies=copies), TWO
        ).level_bytes
        for copies in (1, 8)
    )
    inside, outside = INSIDE.name, OUTSIDE.name
    assert every == pytest.approx({inside: 7 / 16 * S, outside: 8 / 16 * S})
    assert once[outside] == pytest.approx(S / 8 * 2 * (1 - 1 / 2**8) / 2)
    assert once[inside] == pytest.approx(S / 8 * 16 * (1 - (15 / 16) ** 8) * 7 / 8)


def test_a_permutation_waits_for_its_pair_only() -> None:
    found = plan("collective_permute", 4096, 4, TWO, protocol="LL")
    assert found.seconds == pytest.approx(4e-6 + 2e-6 + 4096 / 20e9)


def test_a_broadcast_passes_all_of_it_down_a_chain() -> None:
    found = plan("collective_broadcast", S, 4, TWO, protocol="Simple")
    assert (found.algorithm, found.stages[0].steps) == ("ring", 3)
    assert found.bandwidth_s == pytest.approx(S / 80e9)


def test_halving_and_doubling_takes_log_steps_for_the_same_bytes() -> None:
    for count, steps in ((8, 3), (6, 3), (4, 2)):
        found = plan("all_gather", S, count, cluster(NODE), algorithm="halving-doubling")
        assert found.stages[0].steps == steps
        assert found.bandwidth_s == pytest.approx((count - 1) / count * S / 100e9)


def test_one_shot_sends_everything_to_everyone_in_one_phase() -> None:
    found = plan("all_reduce", 1024, 4, cluster(NODE), algorithm="one-shot")
    assert found.seconds == pytest.approx(1e-6 + 3 * 0.1e-6 + 3 * 1024 / 100e9)
    assert plan("all_reduce", 16, 4, cluster(NODE)).algorithm == "one-shot"
    assert plan("all_reduce", S, 4, cluster(NODE)).algorithm == "direct"


def test_rings_along_both_dimensions_of_a_torus() -> None:
    """Sides of 16: 30 steps a phase, all four links; of a closed torus rings reach their share."""
    found = plan("all_gather", S, 256, cluster(TORUS), algorithm="torus-rings")
    assert found.latency_s == pytest.approx(30e-6)
    assert found.bandwidth_s == pytest.approx(255 / 256 * S / 200e9)
    shared = replace(TORUS, link=LinkTechnology(name="ici", title="ici", library="xla-tpu", share=0.9, rings_share=0.5))
    assert plan("all_gather", S, 256, cluster(shared)).bandwidth_s == pytest.approx(255 / 256 * S / (200e9 * 0.9))
    reduce = plan("all_reduce", S, 256, cluster(shared), algorithm="torus-rings")
    assert reduce.bandwidth_s == pytest.approx(2 * 255 / 256 * S / (200e9 * 0.45))


def test_sums_take_what_is_left_of_an_all_reduce_after_gathering() -> None:
    """At 80 % both phases take 2 / 0.8 = 2.5 times a gather, so the sums 1.5 times."""
    link = LinkTechnology(name="ici", title="ici", library="xla-tpu", rings_share=0.8)
    torus = cluster(replace(TORUS, link=link))
    both, sums, gather = (
        plan(kind, S, 256, torus, algorithm="torus-rings").bandwidth_s
        for kind in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert sums == pytest.approx(1.5 * gather)
    assert both == pytest.approx(sums + gather)
    with pytest.raises(UsageError, match="possible"):
        plan("all_gather", S, 8, cluster(TORUS), algorithm="torus-rings")


def test_the_library_switches_protocols_and_algorithms_with_the_size() -> None:
    machine = load_cluster("dgx-h100").for_devices(8)
    sizes = (2**11, 2**22, 2**33)
    found = [plan("all_reduce", size, 8, machine) for size in sizes]
    assert [(p.algorithm, p.protocol) for p in found] == [("ring", "LL"), ("ring", "LL128"), ("in-network", "Simple")]
    without = replace(machine, levels=(replace(machine.levels[0], in_network_reduction=False),))
    assert plan("all_reduce", sizes[2], 8, without).algorithm == "ring"
    assert all("NCCL" in p.why for p in found)
    assert all(seconds >= p.seconds for p in found for _, seconds in p.others)


def test_what_does_not_apply_is_refused_with_what_does() -> None:
    machine = load_cluster("dgx-h100").for_devices(8)
    with pytest.raises(UsageError, match="protocol 'LL256'") as caught:
        plan("all_reduce", S, 8, machine, protocol="LL256")
    assert caught.value.fix == "possible: LL, LL128, Simple"
    with pytest.raises(UsageError) as caught:
        plan("all_gather", S, 8, machine, algorithm="tree")
    assert "ring" in (caught.value.fix or "")
    with pytest.raises(UnsupportedError, match="gossip"):
        plan("gossip", S, 8, machine)
    asked = plan("all_reduce", S, 8, machine, algorithm="ring", protocol="ll")
    assert (asked.algorithm, asked.protocol, asked.why) == ("ring", "LL", "asked for: ring and ll")


def test_a_technology_is_a_level_s_choice() -> None:
    level: NetworkLevel = load_cluster("l40s-server").levels[0]
    assert level.link.name == "pcie-staged"
    assert load_cluster("tpu-v7-core-pod").levels[1].link.name == "ici-v7"
