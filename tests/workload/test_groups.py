"""Replica groups made compact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshcast.base.mesh import Group, Mesh, SubAxis
from meshcast.hardware import load_cluster
from meshcast.network import plan_collective
from meshcast.programs.mlir import ir
from meshcast.workload.graph import Collective
from meshcast.workload.groups import group_of_ids, permutation, replica_group

MESH = Mesh(axes=(("data", 4), ("fsdp", 2), ("tensor", 8)))


@pytest.mark.parametrize(
    ("ids", "dims", "axes"),
    [
        (list(range(8)), ((8, 1),), ("tensor",)),
        ([0, 8], ((2, 8),), ("fsdp",)),
        ([0, 16, 32, 48], ((4, 16),), ("data",)),
        ([d * 16 + t for d in range(4) for t in range(8)], ((4, 16), (8, 1)), ("data", "tensor")),
        (list(range(16)), ((16, 1),), ("fsdp", "tensor")),
        (list(range(64)), ((64, 1),), ("data", "fsdp", "tensor")),
        ([0, 4], ((2, 4),), ()),  # half of an axis: compact, but no axis' name
        ([5], ((1, 1),), ()),
    ],
)
def test_ids_become_sizes_and_strides(ids: list[int], dims: tuple[tuple[int, int], ...], axes: tuple[str, ...]) -> None:
    group = group_of_ids(ids, MESH)
    assert (group.dims, group.axes) == (dims, axes)
    assert group.size == len(ids)


def test_an_irregular_list_keeps_its_size() -> None:
    assert group_of_ids([0, 1, 5, 7], MESH).size == 4


def test_axes_and_sub_axes_have_strides() -> None:
    assert MESH.group(["data", "tensor"]).dims == ((4, 16), (8, 1))
    assert MESH.group([SubAxis(name="tensor", pre_size=2, size=4)]).dims == ((4, 1),)
    assert MESH.group([SubAxis(name="tensor", pre_size=1, size=2)]).dims == ((2, 4),)


def groups(rows: list[list[int]], mesh: Mesh) -> Group:
    with ir.Context():
        return replica_group(ir.DenseElementsAttr.get(np.array(rows, dtype=np.int64).data), mesh)


EIGHT = Mesh(axes=(("x", 8),))


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[4, 5, 6, 7], [0, 1, 2, 3]],
        [[0, 2, 4, 6], [1, 3, 5, 7]],
        [[3, 2, 1, 0], [7, 6, 5, 4]],
        [[0, 1, 2, 3, 4, 5, 6, 7]],
    ],
)
def test_groups_that_are_shifts_of_each_other_need_no_list(rows: list[list[int]]) -> None:
    found = groups(rows, EIGHT)
    assert not found.table
    assert {frozenset(row.tolist()) for row in found.rows()} == {frozenset(row) for row in rows}


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1, -1, -1], [2, 3, 4, 5]],  # of different sizes, and two devices left out
        [[0, 1], [4, 5]],  # every other pair
        [[0, 1], [2, 5], [3, 4], [6, 7]],  # no shifts
        [[0, 1, 2, 3]],
    ],
)
def test_other_groups_are_listed_and_the_largest_stands_for_them(rows: list[list[int]]) -> None:
    found = groups(rows, EIGHT)
    members = [[i for i in row if i >= 0] for row in rows]
    assert [list(row) for row in found.table] == members
    assert [row.tolist() for row in found.rows()] == members
    assert found.size == max(map(len, members))


def test_the_slowest_of_uneven_groups_counts() -> None:
    cluster = load_cluster("dgx-h100")

    def seconds(rows: list[list[int]]) -> float:
        group = groups(rows, SIXTEEN)
        return plan_collective(
            Collective(kind="all_reduce", group=group, input_bytes=2**20, output_bytes=2**20), cluster
        ).seconds

    near, across = [[0, 1, -1], [2, 3, 4]], [[0, 1, -1], [7, 8, 9]]
    assert seconds(near) < seconds(across)  # the second group leaves the node


def permute(pairs: list[tuple[int, int]], mesh: Mesh) -> Group:
    with ir.Context():
        return permutation(ir.DenseElementsAttr.get(np.array(pairs, dtype=np.int64).data), mesh)[0]


def shift(*ids: int) -> list[tuple[int, int]]:
    return list(zip(ids, (*ids[1:], ids[0]), strict=True))


SIXTEEN = Mesh(axes=(("x", 16),))


@pytest.mark.parametrize(
    ("pairs", "dims", "first", "level"),
    [
        (shift(*range(16)), ((16, 1),), 0, "infiniband"),  # 7 -> 8 leaves the node
        (shift(*range(16))[:-1], ((16, 1),), 0, "infiniband"),  # the same without the way back
        (shift(*range(8)) + shift(*range(8, 16)), ((8, 1),), 0, "nvlink"),  # rings inside nodes
        ([(i, i + 8) for i in range(8)], ((2, 8),), 0, "infiniband"),
        ([(i, i ^ 1) for i in range(16)], ((2, 1),), 0, "nvlink"),
        ([(i, i + 1) for i in range(1, 15, 2)], ((2, 1),), 7, "infiniband"),  # odd to even: 7 -> 8 among them
        ([(1, 3), (3, 5), (5, 7), (9, 11), (11, 13), (13, 15)], ((4, 2),), 1, "nvlink"),  # odd ones, inside nodes
        ([(0, 1), (7, 8)], ((2, 1),), 7, "infiniband"),
        ([(3, 3), (0, 1)], ((2, 1),), 0, "nvlink"),
        ([*shift(*range(7)), (7, 8)], ((2, 1),), 7, "infiniband"),  # not the larger group, the slower pair
        ([(i, 15 - i) for i in range(16)], ((2, 15),), 0, "infiniband"),
    ],
)
def test_a_permutation_is_as_slow_as_its_slowest_pair(
    pairs: list[tuple[int, int]], dims: tuple[tuple[int, int], ...], first: int, level: str
) -> None:
    group = permute(pairs, SIXTEEN)
    assert (group.dims, group.first, group.devices) == (dims, first, 16)
    size = 4 * 2**20
    op = Collective(kind="collective_permute", group=group, input_bytes=size, output_bytes=size)
    answer = plan_collective(op, load_cluster("dgx-h100").for_devices(16))
    assert answer.level == level
    slowest = 50e9 if level == "infiniband" else 450e9
    assert answer.seconds >= size / slowest


def test_a_permutation_along_a_mesh_axis_bears_its_name() -> None:
    rings = [pair for start in range(0, 64, 8) for pair in shift(*range(start, start + 8))]
    assert permute(rings, MESH).axes == ("tensor",)
    assert permute([(1, 1)], MESH).size == 1


def test_the_longest_way_back_does_not_hide_a_chain() -> None:
    """Pairs in any order, rings and chains of any length."""
    found = permute([(9, 4), (2, 9), (12, 2), (5, 6), (6, 5)], SIXTEEN)
    assert (found.first, found.size) == (2, 4)  # 12 -> 2 -> 9 -> 4


def test_a_permutation_of_131072_devices_stays_compact() -> None:
    mesh = Mesh(axes=(("x", 131072),))
    assert permute(shift(*range(131072)), mesh).dims == ((131072, 1),)


def test_groups_start_where_shifts_share_out_the_devices() -> None:
    assert Group(dims=((6, 1),), devices=12).starts().tolist() == [0, 6]
    assert sorted(Group(dims=((2, 4),), devices=16).starts().tolist()) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert sorted(Group(dims=((2, 8), (2, 1)), devices=16).starts().tolist()) == [0, 2, 4, 6]
    assert Group(dims=((2, 1),), first=1, devices=8).starts().tolist() == [1, 3, 5]
    assert Group(dims=((6, 1),)).starts().tolist() == [0]  # nobody else
    assert len(Group(dims=((3, 2), (2, 3)), devices=24).starts()) == 4  # strides that do not nest
    every = MESH.group(["fsdp"])
    members = (every.starts()[:, None] + every.offsets()).reshape(-1)
    assert sorted(members.tolist()) == list(range(MESH.size))


def test_offsets_are_the_members() -> None:
    assert Group(dims=((2, 16), (2, 1))).offsets().tolist() == [0, 1, 16, 17]


def test_groups_with_a_table_have_names_of_their_own() -> None:
    even = Group(dims=((6, 1),), axes=("data",), devices=12)
    assert str(even) == "data"
    assert str(replace(even, table=((0, 1, 2, 3, 4, 5), (6, 7)))) == "uneven 6+2"
    assert str(replace(even, table=((0, 1), (3, 2)))) == "data"
    assert str(replace(even, axes=(), table=((0, 1), (3, 2)))) == "listed 2+2"
    assert str(replace(even, table=tuple((i,) * (1 + i % 2) for i in range(12)))) == "uneven 1+2+1+2+1+2+1+2+..."
