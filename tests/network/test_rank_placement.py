"""Placements: read, refused, and found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base.errors import InputError, UsageError
from meshcast.base.mesh import Group, Mesh
from meshcast.network import plan_collective, spread_over_levels
from meshcast.network.rank_placement import RankPlacement, optimise_placement, read_placement
from meshcast.network.spread import spread_of_devices
from meshcast.workload.graph import Collective
from tests.network.clusters import FABRIC, NODE, TWO_LEVELS, cluster

MESH = Mesh.of({"model": 8, "data": 8})


def all_reduce(*axes: str, size: int = 10**9, mesh: Mesh = MESH) -> Collective:
    return Collective(kind="all_reduce", group=mesh.group(axes), input_bytes=size, output_bytes=size)


def seconds(collective: Collective) -> float:
    return plan_collective(collective, TWO_LEVELS).seconds


def test_the_busier_axis_moves_inside_the_nodes() -> None:
    """Ranks have data inside and model outside; the model axis sends 8 times as much, so it should lie in nodes."""
    collectives = [all_reduce("model", size=8 * 10**9), all_reduce("data")]
    choice = optimise_placement(collectives, 64, TWO_LEVELS, seconds)
    assert choice.dense_s == pytest.approx(sum(map(seconds, collectives)))
    assert choice.seconds < choice.dense_s
    inside = np.stack([choice.placement.of(row) for row in MESH.group(["model"]).rows()])
    assert (inside // 8 == inside[:, :1] // 8).all()
    assert sorted(choice.placement.devices) == list(range(64))
    assert optimise_placement(collectives, 64, TWO_LEVELS, seconds) == choice


def test_ranks_stay_where_moving_does_not_help() -> None:
    choice = optimise_placement([all_reduce("data", "model")], 64, TWO_LEVELS, seconds)
    assert choice.placement.dense
    assert choice.seconds == choice.dense_s


def test_an_axis_is_split_where_a_node_ends() -> None:
    """An axis of 16 over nodes of 8: with digits of 8 and 2 its inner part can fill a node."""
    mesh = Mesh.of({"a": 16, "b": 4})
    collectives = [all_reduce("a", mesh=mesh, size=10**9), all_reduce("b", mesh=mesh, size=10**3)]
    choice = optimise_placement(collectives, 64, TWO_LEVELS, seconds)
    found = spread_of_devices([choice.placement.of(row) for row in mesh.group(["a"]).rows()], TWO_LEVELS)
    assert [(at.level.name, at.parts) for at in found] == [("node", 8), ("fabric", 2)]


def test_many_axes_are_searched_step_by_step() -> None:
    mesh = Mesh.of({name: 2 for name in "abcdefgh"})
    collectives = [all_reduce(name, mesh=mesh, size=10**6 * 4**index) for index, name in enumerate("abcdefgh"[::-1])]
    choice = optimise_placement(collectives, 256, TWO_LEVELS, seconds)
    assert choice.seconds < choice.dense_s
    for name in "abc":  # the three that send most share the nodes of eight
        devices = np.stack([choice.placement.of(row) for row in mesh.group([name]).rows()])
        assert (devices[:, 0] // 8 == devices[:, 1] // 8).all()


def test_groups_that_do_not_nest_need_a_file() -> None:
    group = Group(dims=((3, 2),), devices=8)
    with pytest.raises(UsageError, match="do not nest"):
        optimise_placement([replace(all_reduce("data"), group=group)], 8, TWO_LEVELS, seconds)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([((8, 1),), ((16, 8),), ((64, 1),), ((4, 2),), ((8, 2),), ((4, 64), (2, 1)), ((6, 1),)]))
def test_listed_groups_spread_as_strided_ones(dims: tuple[tuple[int, int], ...]) -> None:
    three = cluster(NODE, replace(FABRIC, name="rail", size=64), replace(FABRIC, name="spine"))
    group = Group(dims=dims, devices=256)
    listed = group.starts()[:, None] + group.offsets()
    assert spread_of_devices(list(listed), three) == spread_over_levels(group, three)


def test_a_shuffled_group_spreads_otherwise() -> None:
    groups = np.array([[0, 8, 1, 9], [2, 3, 4, 5]])
    found = [(at.level.name, at.parts, at.below) for at in spread_of_devices(list(groups), TWO_LEVELS)]
    assert found == [("node", 4, 1), ("fabric", 2, 2)]


def test_a_placement_file(tmp_path: Path) -> None:
    path = tmp_path / "ranks.txt"
    path.write_text("# the second node first\n4\n5 6\n7\n0\n1\n2\n3\n")
    placement = read_placement(path, 8, 8)
    assert placement == RankPlacement(devices=(4, 5, 6, 7, 0, 1, 2, 3))
    assert [placement.of(row).tolist() for row in Group(dims=((4, 1),), devices=8).rows()] == [
        [4, 5, 6, 7],
        [0, 1, 2, 3],
    ]
    with pytest.raises(UsageError, match="rank 15"):
        placement.of(np.arange(16))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n1\n", "ranks 1 and 2 are both on device 1"),
        ("0\n1\n9\n", "rank 2 is on device 9, there are 8"),
        ("0\none\n", "expected a device number, got 'one'"),
        ("0\n1\n", "2 devices for 3 ranks"),
        ("0\n-1\n", "expected a device number"),
    ],
)
def test_mistakes_in_a_placement_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ranks.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_placement(path, 3, 8)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="cannot read"):
        read_placement(tmp_path / "none.txt", 3, 8)
