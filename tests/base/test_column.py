"""Numbers of several points in the place of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from meshcast.base import (
    NotAlikeError,
    NumberColumn,
    OneByOneError,
    PartedError,
    at_place,
    by_point,
    column_of,
    joined,
    larger,
    largest,
    merged,
    number_of,
    of_points,
    place_of_least,
    raw,
    rows_of,
    smaller,
    stacked,
    structure,
    whole_part,
)


def column(*values: float) -> Any:
    return NumberColumn(np.array(values))


def test_operations_are_those_of_each_point() -> None:
    one, other = column(1.0, 2.0, 0.1), column(4.0, 8.0, 0.2)
    found = 2 * one + other / 4 - 1 + (3.0 - one) * other + 8.0 / other - -one
    for place in range(3):
        a, b = float(one.values[place]), float(other.values[place])
        assert at_place(found, place) == 2 * a + b / 4 - 1 + (3.0 - a) * b + 8.0 / b - -a
    assert at_place(np.float64(2.0) * one, 1) == 4.0


def test_a_decision_is_the_same_at_all_points_or_parts_them() -> None:
    numbers = column(1.0, 2.0, 3.0)
    assert numbers > 0.5
    assert numbers <= 3
    assert bool(numbers)
    assert not numbers == 7.0  # noqa: SIM201  # which of the two methods is asked matters
    with pytest.raises(PartedError) as parted:
        _ = numbers >= 2
    assert [side.tolist() for side in parted.value.sides()] == [[1, 2], [0]]
    each = PartedError(np.zeros(2, dtype=bool)).sides()
    assert [side.tolist() for side in each] == [[0], [1]]


def test_what_is_no_operation_fails() -> None:
    numbers = column(1.0, 2.0)
    for ask in (float, str, int, repr, "{:.2f}".format, np.sqrt, lambda given: np.array([given], dtype=float)):
        with pytest.raises((TypeError, AttributeError)):
            ask(numbers)
    assert hash(numbers) != hash(column(1.0, 2.0)), "nothing is found again by equal values"


def test_what_is_asked_of_one_point_alone_says_so() -> None:
    for ask in (float, str, int, math.trunc, lambda given: round(given, 1), "{:.2f}".format):
        with pytest.raises(OneByOneError):
            ask(column(1.0, 2.0))


def test_whole_numbers_of_each_point() -> None:
    assert whole_part(2.9) == 2
    assert raw(whole_part(column(1.2, 2.9))).tolist() == [1.0, 2.0]
    given = (-1.5, 0.5, 2.0, 2.5, 7.3)
    for ask in (math.ceil, math.floor, round):
        assert raw(ask(column(*given))).tolist() == [float(ask(number)) for number in given]


@dataclass(frozen=True)
class Counted:
    """Something with a whole number that is counted with, one that is not, and a float."""

    cores: int
    size: int
    rate: float


def test_whole_numbers_stand_in_columns_where_that_is_asked_for() -> None:
    def counted(name: str) -> bool:
        return name == "cores"

    things = [Counted(4, 8, 1.0), Counted(6, 8, 1.0)]
    found = merged(things, whole=counted)
    assert raw(found.cores).tolist() == [4.0, 6.0]
    assert (found.size, found.rate) == (8, 1.0)
    assert merged([things[0], Counted(4, 8, 1.0)], whole=counted).cores == 4
    with pytest.raises(NotAlikeError):
        merged(things)
    others = [*things, Counted(4, 16, 1.0), Counted(9, 16, 2.0)]
    kinds = [structure(each, whole=counted) for each in others]
    assert kinds[0] == kinds[1] != kinds[2] == kinds[3]
    assert len({structure(each) for each in others}) == 4


def test_powers_are_those_of_floats_and_rows_have_a_place_for_each_point() -> None:
    numbers = column(0.3, 1.7, 2.9)
    assert raw(numbers**13.7).tolist() == [0.3**13.7, 1.7**13.7, 2.9**13.7]
    assert rows_of([numbers, 2.0], 3).tolist() == [[0.3, 1.7, 2.9], [2.0, 2.0, 2.0]]
    assert rows_of([1, 2.0], None).tolist() == [1.0, 2.0]


def test_choices() -> None:
    numbers = column(1.0, 5.0)
    assert raw(larger(numbers, 2.0)).tolist() == [2.0, 5.0]
    assert raw(smaller(2.0, numbers)).tolist() == [1.0, 2.0]
    assert raw(largest([0.5, numbers, column(3.0, 4.0)])).tolist() == [3.0, 5.0]
    assert (larger(1.0, 2.0), smaller(1.0, 2.0), largest([3.0, 4.0, 1.0])) == (2.0, 1.0, 4.0)
    assert place_of_least([3.0, 1.0, 1.0]) == 1
    assert place_of_least([9.0, numbers, column(4.0, 6.0)]) == 1
    with pytest.raises(PartedError):
        place_of_least([2.0, numbers])
    assert raw(by_point(lambda one, two: one * two + 1, numbers, 3.0)).tolist() == [4.0, 16.0]
    assert by_point(abs, -2.0) == 2.0
    assert column_of([2.0, 2.0]) == 2.0
    assert number_of(np.float64(3.0)) == 3.0
    assert stacked([1.0, numbers]).tolist() == [[1.0, 1.0], [1.0, 5.0]]
    assert stacked([1.0, 2.0]).tolist() == [1.0, 2.0]


@dataclass(frozen=True)
class Made:
    name: str
    length: float
    parts: tuple[float, ...] = ()
    table: Any = None


def test_objects_of_several_points_are_merged_parted_and_joined() -> None:
    points = [
        Made("a", 1.0, (2.0, 3.0), {"x": 5.0}),
        Made("b", 1.0, (2.0, 4.0), {"x": 6.0}),
        Made("c", 1.0, (2.0, 3.5), {"x": 5.0}),
    ]
    found = merged(points, lambda name: name == "name")
    assert (found.name, found.length, found.parts[0]) == ("a", 1.0, 2.0)
    assert raw(found.parts[1]).tolist() == [3.0, 4.0, 3.5]
    assert raw(found.table["x"]).tolist() == [5.0, 6.0, 5.0]
    sides = [np.array([0, 2]), np.array([1])]
    halves = [of_points(found, side) for side in sides]
    assert halves[0].table == {"x": 5.0}
    assert halves[1].parts == (2.0, 4.0)
    again = joined(halves, sides)
    assert raw(again.parts[1]).tolist() == [3.0, 4.0, 3.5]
    assert raw(again.table["x"]).tolist() == [5.0, 6.0, 5.0]
    alike = [Made("a", 0.1 * 3, (1.0, 0.1 + 0.2), {"x": 5.0}) for _ in range(2)]
    assert merged(alike) is alike[0], "nothing stands for several where nothing differs"
    with pytest.raises(ValueError, match="not the same"):
        merged(points)
    with pytest.raises(ValueError, match="some points only"):
        merged([Made("a", 1.0), Made("a", 1.0, table=2.0)])
    with pytest.raises(ValueError, match="more parts"):
        merged([Made("a", 1.0, (1.0,)), Made("a", 1.0, (1.0, 2.0))])
