"""Fabrics as graphs: what is connected to what, the ways between devices, and ways around failed links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InfeasibleError, UsageError
from meshcast.hardware import Cluster, Conditions, LinkCondition, NetworkLevel, Wrap, cluster_names, load_cluster
from meshcast.network.fabric import Fabric, Routing, fabric_of
from meshcast.network.fabric.links import Paths
from meshcast.network.slices import slice_shape
from tests.network.clusters import FABRIC, NODE, TORUS, TWO_LEVELS, cluster

FAT_TREE = replace(FABRIC, topology="fat-tree", radix=8, size=2**17)
RAILS = cluster(NODE, replace(FAT_TREE, rails=8))
DRAGONFLY = NetworkLevel(
    name="fabric", technology="test", topology="dragonfly", size=4 * 8 * 9, links=1, link_bandwidth=10e9,
    latency_s=1e-6, dims=(4, 8, 9), global_links=4,
)  # fmt: skip
PCIE = replace(NODE, topology="pcie", size=8, radix=2, sockets=2, socket_bandwidth=50e9)
RING = replace(NODE, topology="ring", links=2)
FULL = replace(NODE, topology="full", links=7)
TWISTED = replace(TORUS, size=32, dims=(4, 8), twist=True)
SHAPES: dict[str, tuple[Cluster, int]] = {
    "switch": (TWO_LEVELS, 24),
    "ring": (cluster(RING), 8),
    "full": (cluster(FULL), 8),
    "torus": (cluster(TORUS), 256),
    "partial torus": (cluster(replace(TORUS, wrap="full-axis")), 30),
    "twisted torus": (cluster(TWISTED), 32),
    "plain fat tree": (cluster(NODE, replace(FAT_TREE, oversubscription=3.0)), 96),
    "rails": (RAILS, 96),
    "dragonfly": (cluster(DRAGONFLY), 288),
    "nodes on a dragonfly": (cluster(NODE, DRAGONFLY), 100),
    "pcie": (cluster(PCIE, FABRIC), 24),
    "staged pcie": (cluster(replace(PCIE, staging_bandwidth=40e9)), 8),
    "two cores a chip": (cluster(replace(NODE, size=2), replace(TORUS, size=32, dims=(4, 4))), 32),
}


def ends(fabric: Fabric, paths: Paths, flow: int, source: int, target: int) -> None:
    """The links of a flow are one way, in whatever order they are listed: bytes leave and enter nodes equally."""
    rows = paths.flow == flow
    balance = np.zeros(len(fabric.node_names))
    np.add.at(balance, fabric.links.source[paths.link[rows]], paths.share[rows])
    np.add.at(balance, fabric.links.target[paths.link[rows]], -paths.share[rows])
    expected = np.zeros_like(balance)
    expected[source] += 1
    expected[target] -= 1
    np.testing.assert_allclose(balance, expected, atol=1e-12)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("routing", [Routing(), Routing(spreading="hash", pxn=True, dragonfly="valiant")])
def test_every_pair_has_a_way_over_links_that_carry(name: str, routing: Routing) -> None:
    fabric = fabric_of(*SHAPES[name], routing=routing)
    chosen = np.random.default_rng(0).integers(0, fabric.devices, (2, 64))
    source, target = chosen[:, chosen[0] != chosen[1]]
    paths = fabric.paths(source, target)
    assert (fabric.capacity[paths.link] > 0).all()
    for flow in range(len(source)):
        ends(fabric, paths, flow, int(source[flow]), int(target[flow]))


@pytest.mark.parametrize("name", cluster_names())
def test_every_cluster_of_the_catalogue_is_a_graph(name: str) -> None:
    found = load_cluster(name)
    fabric = fabric_of(found, min(found.max_devices, 300))
    assert set(fabric.links.level) == set(range(len(fabric.levels)))
    near = fabric.paths(np.array([0]), np.array([1]))
    assert fabric.capacity[near.link].min() > 0


def test_ports_of_two_levels() -> None:
    fabric = fabric_of(TWO_LEVELS, 16)
    assert (len(fabric.node_names), len(fabric.links)) == (16 + 2 + 1, 4 * 16)
    inside, outside = (fabric.paths(np.array([0]), np.array([to])) for to in (1, 8))
    assert list(fabric.capacity[inside.link]) == [100e9, 100e9]
    assert list(fabric.capacity[outside.link]) == [10e9, 10e9]


def test_the_slice_of_a_torus_is_as_even_as_can_be() -> None:
    assert slice_shape(TORUS, 256, 256) == (16, 16)
    assert slice_shape(TORUS, 16, 256) == (4, 4)
    assert slice_shape(TORUS, 32, 256) == (4, 8)
    assert slice_shape(TORUS, 7, 256) == (1, 7)
    assert slice_shape(TORUS, 17, 256) == (3, 6)  # no rectangle of 17 has sides up to 16


@pytest.mark.parametrize(("wrap", "links"), [("always", 64), ("full-axis", 48), ("multiples-of-4", 64), ("never", 48)])
def test_which_sides_of_a_slice_are_closed(wrap: Wrap, links: int) -> None:
    fabric = fabric_of(cluster(replace(TORUS, wrap=wrap)), 16)
    assert len(fabric.links) == links


def test_hops_on_a_torus_are_the_distance_around_it() -> None:
    fabric = fabric_of(cluster(TORUS), 256)
    for target, hops in ((1, 1), (15, 1), (8, 8), (17, 2), (255, 2), (136, 16)):
        paths = fabric.paths(np.array([0]), np.array([target]))
        assert paths.share.sum() == pytest.approx(hops)


def test_a_twist_shortens_the_long_way() -> None:
    """On 4x8 the farthest device is 2 + 4 hops away; the twist of 4 along the long side brings that down to 4."""
    source, target = np.zeros(31, np.int64), np.arange(1, 32)

    def farthest(level: NetworkLevel) -> float:
        return float(np.bincount(fabric_of(cluster(level), 32).paths(source, target).flow).max())

    assert farthest(TWISTED) == 4
    plain = fabric_of(cluster(replace(TWISTED, twist=False)), 32).paths(source, target)
    assert np.bincount(plain.flow, weights=plain.share).max() == 6


def test_a_rail_has_a_leaf_of_its_own() -> None:
    """Radix 8: four nodes below a leaf. Equal ranks of two nodes meet at their leaf, others go through a spine."""
    fabric = fabric_of(RAILS, 96)
    same, other, far = (fabric.paths(np.array([0]), np.array([to])) for to in (8, 9, 80))
    assert len(same.link) == 2
    assert len(other.link) == len(far.link) == 4
    pxn = fabric_of(RAILS, 96, routing=Routing(pxn=True)).paths(np.array([0]), np.array([9]))
    assert sorted(fabric.links.level[pxn.link]) == [0, 0, 1, 1]  # over NVLink to device 1, then along its rail


def test_oversubscription_takes_from_what_leaves_a_leaf() -> None:
    level = replace(FAT_TREE, oversubscription=3.0)
    assert level.devices_per_leaf == 6
    assert level.effective_bandwidth == pytest.approx(level.bandwidth / 3)
    fabric = fabric_of(cluster(level), 24)
    rates = {fabric.node_names[fabric.links.source[link]]: rate for link, rate in enumerate(fabric.capacity)}
    assert rates["fabric leaf 0"] in (6 * 10e9 / 3, 10e9)
    above = np.array(["spine" in fabric.node_names[node] for node in fabric.links.target])
    assert set(fabric.capacity[above]) == {20e9}


def test_three_tiers_where_two_end() -> None:
    """Radix 8, no oversubscription: 4 devices a leaf; 8 leaves fill the ports of a spine, 9 need a third tier."""
    two, three = fabric_of(cluster(FAT_TREE), 32), fabric_of(cluster(FAT_TREE), 33)
    assert not any("tier 3" in name for name in two.node_names)
    assert any("tier 3" in name for name in three.node_names)
    assert len(three.paths(np.array([0]), np.array([32])).link) == 6


def test_hashing_keeps_a_flow_together_and_spreading_does_not_care() -> None:
    hashed = fabric_of(cluster(FAT_TREE), 32, routing=Routing(spreading="hash"))
    source = np.repeat(np.arange(4), 4)
    target = 4 + np.tile(np.arange(4), 4)
    paths = hashed.paths(source, target)
    assert len(np.unique(paths.link[hashed.links.lanes[paths.link] == 1])) > 4
    assert np.array_equal(paths.link, hashed.paths(source, target).link)


def test_a_dragonfly_is_three_routers_wide() -> None:
    fabric = fabric_of(cluster(DRAGONFLY), 288)
    source, target = np.zeros(287, np.int64), np.arange(1, 288)
    assert np.bincount(fabric.paths(source, target).flow).max() == 2 + 3
    around = fabric_of(cluster(DRAGONFLY), 288, routing=Routing(dragonfly="valiant"))
    assert np.bincount(around.paths(source, target).flow).max() > 2 + 3


def test_pcie_switches_roots_and_memory() -> None:
    def hops(level: NetworkLevel, target: int) -> int:
        return len(fabric_of(cluster(level), 8).paths(np.array([0]), np.array([target])).link)

    assert [hops(PCIE, target) for target in (1, 2, 4)] == [2, 4, 5]
    assert [hops(replace(PCIE, staging_bandwidth=40e9), target) for target in (1, 2, 4)] == [6, 6, 7]


def failed(level: str, device: int, share: float = 0.0, links: int | None = None) -> Conditions:
    return Conditions(links=(LinkCondition(level=level, device=device, share=share, links=links),))


def test_a_failed_port_is_gone_around_over_another_level() -> None:
    fabric = fabric_of(TWO_LEVELS, 16, failed("node", 3))
    paths = fabric.paths(np.array([3, 0]), np.array([0, 1]))
    assert set(fabric.links.level[paths.link[paths.flow == 0]]) == {1}
    assert set(fabric.links.level[paths.link[paths.flow == 1]]) == {0}


def test_a_failed_link_of_a_torus_is_gone_around() -> None:
    fabric = fabric_of(cluster(TORUS), 256, failed("ici", 0, links=1))
    healthy = fabric_of(cluster(TORUS), 256)
    down = np.array([16])  # the first side upwards
    assert len(healthy.paths(np.array([0]), down).link) == 1
    assert len(fabric.paths(np.array([0]), down).link) == 3


def test_a_partition_is_named() -> None:
    fabric = fabric_of(cluster(NODE), 8, failed("node", 3))
    with pytest.raises(InfeasibleError, match=r"cut 1 of 8 devices off \(3\)") as caught:
        fabric.paths(np.array([2]), np.array([3]))
    assert caught.value.exit_code == 3


def test_degraded_links_and_background() -> None:
    conditions = replace(failed("node", 3, share=0.5), background={"fabric": 0.25})
    fabric = fabric_of(TWO_LEVELS, 16, conditions)
    paths = fabric.paths(np.array([3, 2, 0]), np.array([2, 3, 8]))
    assert [float(fabric.capacity[paths.link[paths.flow == flow]].min()) for flow in range(3)] == [50e9, 50e9, 7.5e9]
    few = fabric_of(cluster(replace(NODE, links=4)), 8, failed("node", 3, links=1))
    assert few.capacity.min() == pytest.approx(3 / 4 * few.capacity.max())


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (failed("nvlink", 3), "no such level"),
        (failed("node", 16), "no device 16 among 16"),
        (failed("node", 3, share=1.5), "a share of 1.5"),
        (failed("node", 3, links=2), "a device has 1 there"),
        (Conditions(background={"fabric": 1.0}), "a share of 1 of the rate"),
        (Conditions(background={"ether": 0.1}), "no such level"),
        (Conditions(speed={99: 0.5}), "no device 99"),
        (Conditions(speed={1: 0.0}), "is not from 0.001 to 1000"),
    ],
)
def test_conditions_that_mean_nothing_are_refused(conditions: Conditions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fabric_of(TWO_LEVELS, 16, conditions)


@settings(max_examples=25, deadline=None)
@given(devices=st.integers(2, 400), radix=st.integers(2, 40), rails=st.integers(1, 8), over=st.floats(1.0, 5.0))
def test_fat_trees_of_any_shape_connect_everyone(devices: int, radix: int, rails: int, over: float) -> None:
    level = replace(FAT_TREE, radix=radix, rails=rails, oversubscription=over)
    fabric = fabric_of(cluster(NODE, level), devices)
    source = np.arange(devices - 1)
    paths = fabric.paths(source, np.full(devices - 1, devices - 1))
    assert set(paths.flow) == set(range(devices - 1))
    ends(fabric, paths, 0, 0, devices - 1)
