"""ASTRA-sim's rules: by hand, against its own answers, and one NPU for all against all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InfeasibleError, MeshcastError, UnsupportedError, UsageError
from meshcast.base.mesh import Group
from meshcast.evidence.validate.astra import AstraSetting, read_astra_rows
from meshcast.hardware import load_cluster
from meshcast.hardware.astra import ASTRA_SHAPES
from meshcast.network.astra import (
    ASTRA_BACKENDS,
    ASTRA_KINDS,
    AstraBackend,
    AstraDimension,
    AstraKind,
    AstraNetwork,
    AstraSystem,
    astra_plan,
    cluster_network,
    finish_ns,
    preset_system,
    without_effect,
)  # fmt: skip
from meshcast.network.astra.config import Pattern, implementation
from meshcast.network.astra.phases import chunk_phases, chunk_sizes
from meshcast.network.astra.simulation import foldable, simulate
from meshcast.network.astra.tree import place
from meshcast.network.benchmark import collective_of
from meshcast.workload.graph import Collective
from tests.network.clusters import FABRIC, NODE, TORUS, TWO_LEVELS, cluster

FIXTURES = Path(__file__).parents[1] / "fixtures"
# 100 bytes a nanosecond, exactly.
RATE = 100 * 1e9 / (1 << 30)


def network(*shapes: tuple[str, int], latency_ns: float = 500.0) -> AstraNetwork:
    return AstraNetwork(
        dimensions=tuple(
            AstraDimension(shape=shape, npus=npus, bandwidth=RATE, latency_ns=latency_ns)  # type: ignore[arg-type]
            for shape, npus in shapes
        )
    )


def system(*algorithms: str, splits: int = 1, memory: float = 1000.0) -> AstraSystem:
    return AstraSystem(
        all_reduce=algorithms, all_gather=algorithms, reduce_scatter=algorithms, all_to_all=algorithms, splits=splits,
        optimisation="localBWAware", local_memory_bandwidth=memory,
    )  # fmt: skip


RING = network(("Ring", 4))
MESSAGE = 500 + 100  # ns of 10,000 bytes over one hop
REDUCTION = 3 * 10  # ns of 10,000 bytes


@pytest.mark.parametrize(
    ("kind", "size", "by_hand"),
    [
        # 2 (n - 1) messages of a quarter, as many endpoint delays and one, reductions on the way of the first half.
        ("all_reduce", 40_000, 6 * MESSAGE + 7 * 10 + 3 * REDUCTION),
        ("reduce_scatter", 40_000, 3 * MESSAGE + 4 * 10 + 3 * REDUCTION),
        ("all_gather", 10_000, 3 * MESSAGE + 4 * 10),
        # Every one of n (n - 1) / 2 hops is a message of its own.
        ("all_to_all", 40_000, 6 * MESSAGE + 7 * 10),
    ],
)
@pytest.mark.parametrize("backend", ASTRA_BACKENDS)
def test_a_ring_of_four(kind: AstraKind, size: int, by_hand: int, backend: AstraBackend) -> None:
    assert finish_ns(RING, system("ring"), kind, size, backend) == by_hand


def test_a_direct_exchange_over_a_switch_with_and_without_queues() -> None:
    switch = network(("Switch", 4))
    # Without queues all three messages take the time of one; with them one after another, on the way up and down.
    assert finish_ns(switch, system("direct"), "all_gather", 10_000, "Unaware") == 10 + 2 * 500 + 100 + 10
    assert finish_ns(switch, system("direct"), "all_gather", 10_000, "Aware") == 10 + 2 * 500 + 4 * 100 + 10


def test_halving_doubling_reduces_all_but_the_first_and_last_message() -> None:
    # Reductions are charged by the size of the message that is sent next; what comes last is not charged.
    by_hand = 4 * 10 + (1000 + 200) + (1000 + 100) + (1000 + 50) + 3 * 10 + 3 * 5
    assert finish_ns(network(("Switch", 8)), system("halvingDoubling"), "reduce_scatter", 40_000) == by_hand


def test_two_dimensions_scatter_reduce_and_gather() -> None:
    two = network(("Ring", 2), ("Ring", 2))
    ring_of_two = 500 + 100 + 2 * 10  # one message of a half
    scatter, gather = ring_of_two + REDUCTION, ring_of_two
    inner = 2 * (500 + 50) + 3 * 10 + 3 * 5  # an all-reduce of the half
    chunk = scatter + inner + gather
    assert finish_ns(two, system("ring", "ring"), "all_reduce", 20_000) == chunk
    # The second chunk of twice the data works in one dimension while the first one works in the other.
    both = finish_ns(two, system("ring", "ring", splits=2), "all_reduce", 40_000)
    assert chunk < both < 2 * chunk
    baseline = replace(system("ring", "ring"), optimisation="baseline")
    whole = 2 * (500 + 100) + 3 * 10 + REDUCTION
    assert finish_ns(two, baseline, "all_reduce", 20_000) == 2 * whole


def test_trees_alternate_and_hold_every_position_once() -> None:
    for nodes in (2, 4, 8, 16):
        for root_last in (True, False):
            places = [place(position, nodes, root_last=root_last) for position in range(nodes)]
            assert [p.parent for p in places].count(None) == 1
            assert places[nodes - 1 if root_last else 0].parent is None
            children = [child for p in places for child in p.children]
            assert sorted(children) == [p for p in range(nodes) if places[p].parent is not None]
            assert all(places[child].parent == at for at, p in enumerate(places) for child in p.children)
    assert place(3, 8, root_last=True).children == (1, 5)
    assert place(4, 8, root_last=False).children == (2, 6)


def test_chunks_that_do_not_divide_make_one_more() -> None:
    assert chunk_sizes("all_reduce", 100, 4, 8) == (25,) * 4
    assert chunk_sizes("all_reduce", 103, 4, 8) == (25,) * 5
    assert chunk_sizes("all_reduce", 10, 4, 8) == (8,) * 4  # a byte for every NPU at least
    assert chunk_sizes("all_gather", 10, 4, 8) == (2,) * 5
    with pytest.raises(UsageError, match="cannot be cut into 4"):
        chunk_sizes("all_gather", 3, 4, 8)
    with pytest.raises(UnsupportedError, match="10,000 at most"):
        chunk_sizes("all_reduce", 1 << 30, 3_888_340, 8)


@pytest.mark.parametrize(
    ("file", "setting"),
    [
        ("astra_sim.csv", AstraSetting()),
        (
            "astra_sim_baseline.csv",
            AstraSetting(optimisation="baseline", active_chunks=2, local_memory_bandwidth=333.0),
        ),
    ],
)
def test_answers_of_astra_sim_itself_are_equal(file: str, setting: AstraSetting) -> None:
    rows = read_astra_rows(FIXTURES / file, setting)
    off = {
        row.id: (found, row.finish_ns)
        for row in rows
        if (found := finish_ns(row.network, row.system, row.kind, row.size, row.backend)) != row.finish_ns
    }
    assert not off


@st.composite
def collectives(draw: st.DrawFn) -> tuple[AstraNetwork, AstraSystem, AstraKind, int, AstraBackend]:
    backend: AstraBackend = draw(st.sampled_from(ASTRA_BACKENDS))
    count = 1 if backend == "Aware" else draw(st.integers(1, 2))
    kind: AstraKind = draw(st.sampled_from(ASTRA_KINDS))
    patterns = {"ring", "direct", "direct2"} | ({"halvingDoubling"} if kind != "all_to_all" else set())
    dimensions = tuple(
        AstraDimension(
            shape=draw(st.sampled_from(ASTRA_SHAPES)), npus=draw(st.sampled_from((2, 4, 8))),
            bandwidth=draw(st.sampled_from((10.0, 33.3, 200.0))), latency_ns=draw(st.sampled_from((10.0, 250.5, 1000.0))),
        )
        for _ in range(count)
    )  # fmt: skip
    chosen = system(*(draw(st.sampled_from(sorted(patterns))) for _ in range(count)), splits=draw(st.integers(1, 4)))
    chosen = replace(chosen, active_chunks=draw(st.integers(1, 2)))
    return AstraNetwork(dimensions=dimensions), chosen, kind, draw(st.integers(64, 1 << 22)), backend


@given(collectives())
@settings(max_examples=80, deadline=None)
def test_one_npu_stands_for_all_where_it_may(
    case: tuple[AstraNetwork, AstraSystem, AstraKind, int, AstraBackend],
) -> None:
    net, chosen, kind, size, backend = case
    chunks = chunk_phases(net, chosen, kind, size)
    if foldable(net, chunks, backend):
        alone = simulate(net, chosen, chunks, backend, folded=True)
        assert alone == simulate(net, chosen, chunks, backend, folded=False)


@given(collectives())
@settings(max_examples=80, deadline=None)
def test_never_faster_than_the_wire_nor_slower_without_queues(
    case: tuple[AstraNetwork, AstraSystem, AstraKind, int, AstraBackend],
) -> None:
    net, chosen, kind, size, backend = case
    if backend == "Aware":
        aware = finish_ns(net, chosen, kind, size, "Aware")
        unaware = finish_ns(net, chosen, kind, size, "Unaware")
        # A queue only ever adds; what a message loses is the part of a nanosecond that is cut off at every hop.
        hops = sum(d.npus for d in net.dimensions) * len(chunk_phases(net, chosen, kind, size)) * 64
        assert aware >= unaware - hops
    faster = AstraNetwork(dimensions=tuple(replace(d, bandwidth=2 * d.bandwidth) for d in net.dimensions))
    single = replace(chosen, splits=1)  # with more chunks their order may change, and the end with it
    # Of messages that wait for a window another one may come first, which costs one more turn at the endpoint.
    turn = single.endpoint_delay_ns if any(d.npus > 2 for d in net.dimensions) else 0
    assert finish_ns(faster, single, kind, size) <= finish_ns(net, single, kind, size) + turn


def test_a_power_of_two_is_asked_for() -> None:
    for name in ("halvingDoubling", "doubleBinaryTree"):
        with pytest.raises(UnsupportedError, match="power of two"):
            finish_ns(network(("Switch", 6)), system(name), "all_reduce", 1 << 20)


@pytest.mark.parametrize(
    ("net", "chosen", "kind", "backend", "error", "words"),
    [
        (network(("Ring", 4), ("Ring", 4)), system("ring"), "all_reduce", "Unaware", UsageError, "2 dimensions"),
        (RING, system("ring", "ring"), "all_reduce", "Unaware", UsageError, "names 2 algorithms"),
        (RING, system("rings"), "all_reduce", "Unaware", UsageError, "'rings'"),
        (RING, system("direct0"), "all_reduce", "Unaware", UsageError, "'direct0'"),
        (RING, system("ring", splits=0), "all_reduce", "Unaware", UsageError, "preferred-dataset-splits"),
        (RING, system("ring", memory=0.0), "all_reduce", "Unaware", UnsupportedError, "local-mem-bw"),
        (RING, system("halvingDoubling"), "all_to_all", "Unaware", UnsupportedError, "all-to-all"),
        (network(("Ring", 4), ("Ring", 4)), system("ring", "ring"), "all_reduce", "Aware", UnsupportedError, "has 2"),
        (RING, replace(system("ring"), others={"model-shared-bus": 1}), "all_reduce", "Unaware", UnsupportedError, "bus"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_said(
    net: AstraNetwork,
    chosen: AstraSystem,
    kind: AstraKind,
    backend: AstraBackend,
    error: type[MeshcastError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        finish_ns(net, chosen, kind, 1 << 20, backend)


def test_a_deadlock_of_astra_sim_is_named() -> None:
    """Found by comparing with ASTRA-sim, whose run of the same ends without an answer."""
    net = AstraNetwork(
        dimensions=(
            AstraDimension(shape="Ring", npus=5, bandwidth=100.0, latency_ns=1000.5),
            AstraDimension(shape="FullyConnected", npus=4, bandwidth=12.5, latency_ns=500.0),
            AstraDimension(shape="FullyConnected", npus=5, bandwidth=100.0, latency_ns=936.25),
        )
    )
    chosen = replace(system("direct1", "doubleBinaryTree", "direct3", splits=16, memory=50.0), endpoint_delay_ns=300)
    with pytest.raises(InfeasibleError, match="wait for messages that nobody sends"):
        finish_ns(net, chosen, "all_reduce", 2436)


def test_settings_without_effect_are_named() -> None:
    chosen = replace(system("ring"), others={"peak-perf": 100})
    assert without_effect(RING, chosen, "all_gather") == (
        "scheduling-policy", "collective-optimization", "local-mem-bw", "peak-perf",
    )  # fmt: skip
    assert without_effect(network(("Ring", 4), ("Ring", 4)), system("ring", "ring"), "all_reduce") == (
        "scheduling-policy",
    )


def test_names_of_algorithms() -> None:
    assert {
        implementation(name).pattern for name in ("ring", "oneDirect4", "halvingDoubling", "doubleBinaryTree")
    } == set(get_args(Pattern))
    assert implementation("oneDirect4").window == 4
    assert implementation("oneDirect4").whole


def collective(kind: str, size: int, group: Group) -> Collective:
    factor = group.size if kind == "all_gather" else 1
    return Collective(kind=kind, group=group, input_bytes=size // factor, output_bytes=size)


def test_collectives_of_programs_take_levels_for_dimensions() -> None:
    everyone = Group(dims=((64, 1),))
    found = astra_plan(collective("all_reduce", 1 << 20, everyone), TWO_LEVELS)
    assert found.algorithm == "ring + ring"
    assert found.bottleneck is not None
    assert found.bottleneck.level is FABRIC
    assert found.seconds == pytest.approx(
        1e-9 * finish_ns(cluster_network(TWO_LEVELS, 64), preset_system(cluster_network(TWO_LEVELS, 64), TWO_LEVELS.device),
                         "all_reduce", 1 << 20)
    )  # fmt: skip
    inside = astra_plan(collective("all_reduce", 1 << 20, Group(dims=((8, 1),))), TWO_LEVELS)
    assert inside.bottleneck is not None
    assert inside.bottleneck.level is NODE
    assert inside.seconds < found.seconds
    torus = astra_plan(collective("all_gather", 1 << 20, Group(dims=((64, 1),))), cluster(TORUS))
    assert torus.algorithm == "ring + ring"
    sent = astra_plan(collective("collective_permute", 10_000_000, Group(dims=((2, 8),))), cluster(NODE, FABRIC))
    assert sent.seconds == pytest.approx(1e-3 + FABRIC.latency_s, rel=1e-4)
    assert astra_plan(collective("all_reduce", 8, Group(dims=((1, 1),))), TWO_LEVELS).seconds == 0


def test_collectives_that_astra_sim_does_not_have() -> None:
    with pytest.raises(UnsupportedError, match="collective_broadcast"):
        astra_plan(collective("collective_broadcast", 100, Group(dims=((8, 1),))), TWO_LEVELS)
    uneven = Group(dims=((6, 1),), devices=24)
    with pytest.raises(UnsupportedError, match="products of dimensions"):
        astra_plan(collective("all_reduce", 1 << 20, uneven), TWO_LEVELS)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_plan_sends_what_a_ring_sends_and_no_more_than_the_links_carry(kind: str) -> None:
    cluster = load_cluster("dgx-v100").for_devices(16)
    plan = astra_plan(collective_of(kind, 2**30, Group(dims=((16, 1),))), cluster)
    (stage,) = plan.stages
    phases = 2 if kind == "all_reduce" else 1
    # Two nodes of eight: half of the buffer, an eighth of it by each device, in each phase.
    assert stage.level.name == "infiniband"
    assert stage.step_bytes == phases * 2**30 / 2 / 8
    assert stage.rate <= stage.level.bandwidth
    assert plan.seconds == pytest.approx(plan.start_s + stage.step_bytes / stage.rate)
