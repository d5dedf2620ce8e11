"""Slices of tori: their shapes, how groups lie in them, and that both models count the same links."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InfeasibleError, UsageError
from meshcast.base.mesh import Group, Mesh
from meshcast.hardware import NetworkLevel, Wrap, load_cluster
from meshcast.network import spread_over_levels
from meshcast.network.benchmark import collective_of
from meshcast.network.fabric import fabric_of
from meshcast.network.leaves import leaving
from meshcast.network.models import AlphaBeta, Flow
from meshcast.network.setting import Setting
from meshcast.network.slices import SliceLine, lines_in_slice, regular, slice_shape
from tests.network.clusters import TORUS, cluster

CUBES = replace(TORUS, dims=(16, 20, 28), size=8960, links=6, wrap="multiples-of-4")


@pytest.mark.parametrize(
    ("chips", "shape"),
    [(4, (1, 2, 2)), (8, (2, 2, 2)), (16, (2, 2, 4)), (32, (2, 4, 4)), (64, (4, 4, 4)), (128, (4, 4, 8)), (192, (4, 4, 12)),
     (256, (4, 8, 8)), (384, (4, 8, 12)), (512, (8, 8, 8)), (1024, (8, 8, 16)), (2048, (8, 16, 16)), (6144, (16, 16, 24))],
)  # fmt: skip
def test_slices_of_cubes_have_the_shapes_that_are_offered(chips: int, shape: tuple[int, ...]) -> None:
    assert slice_shape(CUBES, chips, 8960) == shape


@pytest.mark.parametrize(
    ("chips", "shape"), [(4, (2, 2)), (8, (2, 4)), (16, (4, 4)), (32, (4, 8)), (64, (8, 8)), (128, (8, 16)), (256, (16, 16))]
)  # fmt: skip
def test_slices_of_flat_pods_have_the_shapes_that_are_offered(chips: int, shape: tuple[int, ...]) -> None:
    assert slice_shape(TORUS, chips, 256) == shape


def test_a_slice_larger_than_its_pod_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="257 devices do not fit into a torus of 16x16"):
        slice_shape(TORUS, 257, 512)


def lines(level: NetworkLevel, group: Group) -> tuple[SliceLine, ...]:
    (at,) = spread_over_levels(group, cluster(level))
    return at.lines


def test_a_corner_of_an_open_slice_has_one_link_a_side() -> None:
    """64 of a pod of 16x16 are 8x8 without closing links; all 256 have them."""
    flat = replace(TORUS, wrap="full-axis")
    assert [line.ways for line in lines(flat, Group(dims=((64, 1),)))] == [1, 1]
    assert [line.ways for line in lines(flat, Group(dims=((256, 1),)))] == [2, 2]


def test_groups_that_interleave_share_their_links() -> None:
    """On 4x4 the devices 0, 2 of each row are two hops apart, and devices 1, 3 use the same links."""
    found = lines(replace(TORUS, wrap="never"), Group(dims=((4, 4), (2, 2)), devices=16))
    assert found == (SliceLine(side=0, length=4), SliceLine(side=1, length=2, spacing=2, shared=2))
    alone = lines(replace(TORUS, wrap="never"), Group(dims=((2, 2),)))
    assert [line.shared for line in alone] == [1]


def test_members_that_are_no_box_are_a_ring_over_one_link() -> None:
    found = lines_in_slice(TORUS, [np.array([0, 1, 3])], 1, 16)
    assert not regular(found)
    assert sum(line.free_ways for line in found) == 1


@given(st.integers(2, 24), st.booleans())
def test_what_crosses_the_fullest_link_of_a_line(length: int, closed: bool) -> None:
    """By counting the bytes on every link, each member sending one, evenly to all."""
    loads = [0.0] * length  # of the links upwards; those downwards have the same
    for here, there in itertools.product(range(length), repeat=2):
        ahead = (there - here) % length if closed else there - here
        if ahead < 0 or (closed and 2 * ahead > length):
            continue
        both_ways = closed and 2 * ahead == length > 2
        for step in range(ahead):
            loads[(here + step) % length] += (0.5 if both_ways else 1.0) / length
    assert SliceLine(side=0, length=length, closed=closed).crossing == pytest.approx(max(loads))


KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "collective_broadcast")
ALGORITHMS = (None, "ring", "torus-rings", "bidirectional-ring", "one-shot", "tree", "direct")


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from([(8,), (4, 4), (2, 6), (3, 4), (4, 4, 4), (2, 4, 4), (3, 3, 2)]),
    st.sampled_from(["always", "full-axis", "multiples-of-4", "never"]),
    st.sampled_from(KINDS),
    st.sampled_from(ALGORITHMS),
    st.data(),
)
def test_plans_are_what_the_links_can_carry(
    dims: tuple[int, ...], wrap: Wrap, kind: str, algorithm: str | None, data: st.DataObject
) -> None:
    """With links at their full rate: evenly spaced boxes take exactly as long as their flows, no plan takes longer."""
    devices = math.prod(dims)
    level = replace(TORUS, dims=dims, size=devices, links=2 * len(dims), wrap=wrap, latency_s=0.0)
    inner = data.draw(st.sampled_from([n for n in range(1, devices + 1) if devices % n == 0]))
    middle = data.draw(st.sampled_from([n for n in range(1, devices // inner + 1) if devices // inner % n == 0]))
    mesh = Mesh.of({"a": devices // inner // middle, "b": middle, "c": inner})
    axes = data.draw(st.sampled_from([["a"], ["b"], ["c"], ["a", "b"], ["b", "c"], ["a", "c"], ["a", "b", "c"]]))
    group = mesh.group(axes)
    assume(group.size > 1)
    setting = Setting(cluster=cluster(level), devices=devices, algorithm=algorithm)
    collective = collective_of(kind, 2**30, group)
    try:
        planned = AlphaBeta(setting=setting).seconds(collective)
    except UsageError:
        assume(False)
    flows = Flow(setting=setting).seconds(collective)
    assert flows >= planned * (1 - 1e-9)
    (at,) = spread_over_levels(group, setting.cluster)
    if regular(at.lines):
        assert flows == pytest.approx(planned, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.integers(1, 40))
def test_what_leaves_a_leaf_is_what_its_way_out_carries(over: int, size: int, railed: bool, nodes: int) -> None:
    tapered = load_cluster("h100-oversubscribed")
    node, tree = tapered.levels
    tree = replace(tree, radix=16, oversubscription=float(over), rails=8 if railed else 1)
    devices = 8 * nodes
    assume(nodes % size == 0 and nodes > size)
    tapered = replace(tapered, levels=(node, tree))
    group = Group(dims=((nodes // size, 8 * size), (8, 1)), devices=devices)
    rows = group.rows()
    found = leaving(tree, rows, inner=8, devices=devices)
    fabric = fabric_of(tapered, devices)
    sent = np.zeros(len(fabric.links))
    for row in rows:
        source, target = np.repeat(row, len(row)), np.tile(row, len(row))
        apart = source // 8 != target // 8
        paths = fabric.paths(source[apart], target[apart])
        sent += np.bincount(paths.link, weights=paths.share, minlength=len(sent))
    ports = (fabric.links.source < devices) | (fabric.links.target < devices)
    seconds = (sent / fabric.capacity)[~ports & (fabric.links.level == 1)].max(initial=0.0)
    if over == 1:
        assert found == 0.0
    else:
        assert found / tree.bandwidth == pytest.approx(seconds)
