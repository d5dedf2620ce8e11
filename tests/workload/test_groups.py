"""Replica groups made compact."""

from __future__ import annotations

import pytest

from meshcast.mesh import Group, Mesh, SubAxis
from meshcast.workload.groups import group_of_ids

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


def test_offsets_are_the_members() -> None:
    assert Group(dims=((2, 16), (2, 1))).offsets().tolist() == [0, 1, 16, 17]
