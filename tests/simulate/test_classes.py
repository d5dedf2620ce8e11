"""Ranks that are alike, by hand and against a count of every rank."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.mesh import OUTSIDE, Group, Mesh, group_numbers
from meshcast.simulate.classes import RankClasses, refine

MESH = Mesh.of({"data": 3, "tensor": 4})


def over(*axes: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return group_numbers(MESH.group(axes), MESH.size)


def slow(*ranks: int, count: int = 12) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    start = np.zeros(count, dtype=np.int64)
    start[list(ranks)] = 1
    return start


def members(classes: RankClasses) -> list[list[int]]:
    return [np.flatnonzero(classes.of_rank == index).tolist() for index in range(classes.count)]


def test_without_a_difference_there_is_one_class() -> None:
    classes = refine(slow(), [over("data"), over("tensor")])
    assert classes.count == 1
    assert classes.sizes.tolist() == [12]
    assert classes.first.tolist() == [0]


def test_a_slow_rank_its_row_its_column_and_the_rest() -> None:
    classes = refine(slow(5), [over("data"), over("tensor")])
    assert members(classes) == [[0, 2, 3, 8, 10, 11], [1, 9], [4, 6, 7], [5]]
    data, tensor = classes.together
    # In its group over "data" rank 5 meets 1 and 9; over "tensor" 4, 6 and 7.
    assert np.flatnonzero(data[3]).tolist() == [1, 3]
    assert np.flatnonzero(tensor[3]).tolist() == [2, 3]
    assert np.flatnonzero(tensor[1]).tolist() == [0, 1]


def test_one_group_of_all_has_two_classes() -> None:
    assert members(refine(slow(5), [over("data", "tensor")])) == [[0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11], [5]]


def test_ranks_outside_of_all_groups_are_a_class_of_their_own() -> None:
    pair = group_numbers(Group(dims=((2, 1),)), 4)
    assert pair.tolist() == [0, 0, OUTSIDE, OUTSIDE]
    classes = refine(slow(count=4), [pair])
    assert members(classes) == [[0, 1], [2, 3]]
    assert classes.together[0].tolist() == [[True, False], [False, True]]


def test_groups_of_different_sizes_are_told_apart() -> None:
    uneven = group_numbers(Group(dims=((3, 1),), table=((0, 1, 2), (3, 4))), 6)
    assert members(refine(slow(count=6), [uneven])) == [[0, 1, 2], [3, 4], [5]]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(0, 47), max_size=3))
def test_ranks_of_a_class_see_the_same_classes_in_every_group(a: int, b: int, c: int, ranks: list[int]) -> None:
    mesh = Mesh.of({"a": a, "b": b, "c": c})
    groups = [group_numbers(mesh.group(axes), mesh.size) for axes in (["a"], ["b"], ["c"], ["a", "c"])]
    start = np.zeros(mesh.size, dtype=np.int64)
    start[[rank % mesh.size for rank in ranks]] = 1
    classes = refine(start, groups)
    for index in range(classes.count):
        own = np.flatnonzero(classes.of_rank == index)
        assert len(set(start[own])) == 1
        for numbers in groups:
            seen = {tuple(np.sort(classes.of_rank[numbers == numbers[rank]])) for rank in own}
            assert len(seen) == 1
