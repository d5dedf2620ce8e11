"""Frozen dataclasses made quickly are as frozen, equal, printed and refused as they were."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from meshcast.base import copier, made_quickly


@made_quickly
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    name: str = field(default="", kw_only=True)


def test_it_takes_what_it_took_and_is_of_its_class() -> None:
    point = Point(1, name="a")
    assert (point.x, point.y, point.name) == (1, 2, "a")
    assert type(point) is Point
    assert repr(point) == "Point(x=1, y=2, name='a')"
    assert [str(each) for each in inspect.signature(Point).parameters.values()] == [
        "x: 'int'", "y: 'int' = 2", "name: 'str' = ''"
    ]  # fmt: skip
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]


def test_it_stays_frozen_equal_and_replaceable() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 3  # type: ignore[misc]
    assert replace(point, y=5) == Point(1, 5)
    assert {point: "one"}[Point(1)] == "one"
    assert pickle.loads(pickle.dumps(point)) == point


def test_no_field_is_set_through_the_slow_way() -> None:
    """The one that `dataclass` writes calls `object.__setattr__` three times here."""
    names = Point.__init__.__code__.co_names
    assert names.count("_set") == 1
    assert "__setattr__" not in names


def test_one_that_is_made_of_another_is_made_as_quickly() -> None:
    @made_quickly
    @dataclass(frozen=True, slots=True)
    class Pixel(Point):
        colour: str = "red"

    pixel = Pixel(1, colour="blue")
    assert (pixel.x, pixel.y, pixel.colour, type(pixel)) == (1, 2, "blue", Pixel)
    with pytest.raises(FrozenInstanceError):
        pixel.x = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        pixel.colour = "green"  # type: ignore[misc]


def test_what_is_not_of_plain_fields_in_slots_is_refused() -> None:
    @dataclass(frozen=True)
    class Loose:
        x: int

    @dataclass(frozen=True, slots=True)
    class Factory:
        x: list[int] = field(default_factory=list)

    refused: tuple[type[Any], ...] = (Loose, Factory)
    for cls in refused:
        with pytest.raises(TypeError, match="not made of plain fields"):
            made_quickly(cls)


def test_what_is_worked_out_afterwards_is_still_worked_out() -> None:
    @made_quickly
    @dataclass(frozen=True, slots=True)
    class Square:
        side: int
        area: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.side**2)

    assert Square(3).area == 9
    assert replace(Square(3), side=4).area == 16


def test_a_copy_has_the_same_fields_but_for_those_that_are_given() -> None:
    at = copier(Point, "y", "name")
    point = at(Point(1), 7, "b")
    assert point == Point(1, 7, name="b")
    assert type(point) is Point
    with pytest.raises(FrozenInstanceError):
        point.y = 3  # type: ignore[misc]
