"""`NumberColumn`: a number that is another one at each of several points, so that code which works one out works all of them out.

Points of a sweep differ in a few numbers of their hardware, and nearly all that is done with these is sums, products and maxima.
Such a column stands where a float stood and does each operation for all points at once, as NumPy does it: IEEE's sums, products
and quotients are the same ones, to the last bit, one by one or in an array, and so are the whole numbers next to one. What is no
such operation says so: a column has no text, no hash by value and is no float, so that whoever would print it, index with it or
look it up by its value fails (`OneByOneError`), and is asked point by point instead. Where a comparison does not come out alike
at all points the way parts (`PartedError`): whoever began goes on with those of one answer, and then with the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Sign = Literal["<=", ">="]


class OneByOneError(TypeError):
    """Something that is asked of one point alone: the numbers of several have no text, are not rounded, and key no table."""


class NotAlikeError(ValueError):
    """Things of several points that differ in something else than numbers."""


class PartedError(Exception):
    """A decision that is not the same at all points.

    Attributes:
        mask: The points on one side; none where each point goes alone.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__(f"{int(mask.sum())} of {len(mask)} points go another way")
        self.mask = mask

    def sides(self) -> list[npt.NDArray[np.int64]]:
        """The places of points that go on together."""
        if self.mask.any():
            return [np.flatnonzero(self.mask), np.flatnonzero(~self.mask)]
        return [np.array([place]) for place in range(len(self.mask))]


class Standing:
    """What stands where a float stood, and chooses between two numbers by a rule of its own."""

    __slots__ = ()

    def chosen(self, left: Any, sign: Sign, right: Any) -> Any:
        """The one of two numbers that a comparison chooses, whichever that is."""
        raise NotImplementedError


class NumberColumn(Standing):
    """A number of each point."""

    __slots__ = ("values",)
    __array_ufunc__ = None  # NumPy's own numbers leave operations with it to it

    def __init__(self, values: Floats) -> None:
        self.values = values

    def __add__(self, other: Any) -> NumberColumn:
        return NumberColumn(self.values + raw(other))

    def __radd__(self, other: Any) -> NumberColumn:
        return NumberColumn(raw(other) + self.values)

    def __sub__(self, other: Any) -> NumberColumn:
        return NumberColumn(self.values - raw(other))

    def __rsub__(self, other: Any) -> NumberColumn:
        return NumberColumn(raw(other) - self.values)

    def __mul__(self, other: Any) -> NumberColumn:
        return NumberColumn(self.values * raw(other))

    def __rmul__(self, other: Any) -> NumberColumn:
        return NumberColumn(raw(other) * self.values)

    def __truediv__(self, other: Any) -> NumberColumn:
        return NumberColumn(self.values / raw(other))

    def __rtruediv__(self, other: Any) -> NumberColumn:
        return NumberColumn(raw(other) / self.values)

    def __neg__(self) -> NumberColumn:
        return NumberColumn(-self.values)

    def __pow__(self, exponent: float) -> NumberColumn:
        """One by one: NumPy's powers are not those of floats, to the last bit."""
        return NumberColumn(np.array([each**exponent for each in self.values.tolist()]))

    def __lt__(self, other: Any) -> bool:
        return decided(self.values < raw(other))

    def __le__(self, other: Any) -> bool:
        return decided(self.values <= raw(other))

    def __gt__(self, other: Any) -> bool:
        return decided(self.values > raw(other))

    def __ge__(self, other: Any) -> bool:
        return decided(self.values >= raw(other))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, NumberColumn | float | int):
            return NotImplemented
        return decided(self.values == raw(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return decided(self.values != 0.0)

    __hash__ = object.__hash__  # answers that were worked out from this very one are found again, and no others

    def __repr__(self) -> str:
        raise OneByOneError("the numbers of several points have no one text")

    __str__ = __repr__

    def __format__(self, how: str) -> str:
        return repr(self)

    def __float__(self) -> float:
        raise OneByOneError("the numbers of several points are no one number")

    def __ceil__(self) -> NumberColumn:
        """The next whole number at each point, as `math.ceil` has it of one."""
        return NumberColumn(np.ceil(self.values))

    def __floor__(self) -> NumberColumn:
        """The whole number below at each point, as `math.floor` has it of one."""
        return NumberColumn(np.floor(self.values))

    def __round__(self, digits: int | None = None) -> NumberColumn:
        """The nearest whole number at each point, the even one of two, as `round` has it of one."""
        if digits is not None:
            raise OneByOneError("the numbers of several points are not rounded to digits")
        return NumberColumn(np.rint(self.values))

    def _cut(self) -> int:
        raise OneByOneError("the numbers of several points are no one whole number")

    __int__ = __index__ = __trunc__ = _cut

    def chosen(self, left: Any, sign: Sign, right: Any) -> NumberColumn:
        """The larger or the smaller one at each point."""
        choose = np.maximum if sign == ">=" else np.minimum
        return NumberColumn(choose(raw(left), raw(right)))


def raw(number: Any) -> Any:
    """A column's array; any other number as it is."""
    return number.values if isinstance(number, NumberColumn) else number


def decided(mask: Any) -> bool:
    """What a comparison says at all points.

    Raises:
        PartedError: It does not say the same.
    """
    if mask.all():
        return True
    if mask.any():
        raise PartedError(mask)
    return False


def larger(one: float, other: float) -> float:
    """The larger of two numbers, whichever it is: one operation, where `max` would be a way to part at."""
    if isinstance(one, Standing):
        return one.chosen(one, ">=", other)  # type: ignore[no-any-return]
    if isinstance(other, Standing):
        return other.chosen(one, ">=", other)  # type: ignore[no-any-return]
    return one if one >= other else other


def smaller(one: float, other: float) -> float:
    """The smaller of two numbers, whichever it is."""
    if isinstance(one, Standing):
        return one.chosen(one, "<=", other)  # type: ignore[no-any-return]
    if isinstance(other, Standing):
        return other.chosen(one, "<=", other)  # type: ignore[no-any-return]
    return one if one <= other else other


def whole_part(number: float) -> int:
    """A number without what is behind its point, at each point where it is a column: bytes are whole ones."""
    return NumberColumn(np.trunc(number.values)) if isinstance(number, NumberColumn) else int(number)


def largest(numbers: Sequence[float]) -> float:
    """The largest of some numbers, whichever it is."""
    return functools.reduce(larger, numbers)


def place_of_least(numbers: Sequence[float]) -> int:
    """The place of the first of the least numbers.

    Raises:
        PartedError: It is another one at other points.
    """
    if not any(isinstance(number, NumberColumn) for number in numbers):
        return numbers.index(min(numbers))
    rows = np.broadcast_arrays(*(raw(number) for number in numbers))
    least = np.argmin(np.stack(rows), axis=0)
    if not (least == least[0]).all():
        raise PartedError(least == least[0])
    return int(least[0])


def by_point(function: Callable[..., float], *numbers: Any) -> Any:
    """What a function of plain floats gives, at each point where one of them is a column; equal numbers are asked once."""
    if not any(isinstance(number, NumberColumn) for number in numbers):
        return function(*numbers)
    rows = np.broadcast_arrays(*(raw(number) for number in numbers))
    known: dict[tuple[float, ...], float] = {}
    found: list[float] = []
    for given in zip(*(row.tolist() for row in rows), strict=True):
        if given not in known:
            known[given] = function(*given)
        found.append(known[given])
    return column_of(found)


def column_of(values: Sequence[float] | Floats) -> Any:
    """The numbers of some points as one: a plain float where all are the same."""
    array = np.array(values, dtype=np.float64)
    return float(array[0]) if (array == array[0]).all() else NumberColumn(array)


def number_of(value: Any) -> Any:
    """An array's number, or a column of its numbers."""
    return NumberColumn(value) if isinstance(value, np.ndarray) and value.ndim else float(value)


def rows_of(numbers: Iterable[Any], points: int | None) -> Floats:
    """Numbers as an array; of several points with a row for each number, and a place for each point."""
    listed = list(numbers)
    if points is None:
        return np.array(listed, dtype=np.float64)
    found = np.empty((len(listed), points))
    for row, number in zip(found, listed, strict=True):
        row[:] = raw(number)
    return found


def stacked(numbers: Sequence[Any]) -> Floats:
    """Numbers as an array, with a dimension of points where some are columns."""
    if not any(isinstance(number, NumberColumn) for number in numbers):
        return np.array(numbers, dtype=np.float64)
    return np.stack(np.broadcast_arrays(*(raw(number) for number in numbers)))


def at_place(number: Any, place: int) -> Any:
    """The number of one point."""
    return float(number.values[place]) if isinstance(number, NumberColumn) else number


def mapped(thing: T, change: Callable[[NumberColumn], Any]) -> T:
    """An object with its columns changed; the same object where it has none."""
    made: Any = thing
    if isinstance(thing, NumberColumn):
        made = change(thing)
    elif is_dataclass(thing) and not isinstance(thing, type):
        changed = {}
        for each in fields(thing):
            inner = getattr(thing, each.name)
            if each.init and not isinstance(inner, str | int | float | None):
                new = mapped(inner, change)
                if new is not inner:
                    changed[each.name] = new
        made = replace(thing, **changed) if changed else thing
    elif isinstance(thing, tuple | list):
        inner_ones = [mapped(each, change) for each in thing]
        if any(new is not old for new, old in zip(inner_ones, thing, strict=True)):
            made = type(thing)(inner_ones)
    elif isinstance(thing, Mapping):
        table = {key: mapped(value, change) for key, value in thing.items()}
        if any(table[key] is not value for key, value in thing.items()):
            made = table
    found: T = made
    return found


def of_points(thing: T, places: npt.NDArray[np.int64]) -> T:
    """An object of some of its points."""
    return mapped(thing, lambda column: column_of(column.values[places]))


def joined(things: Sequence[T], places: Sequence[npt.NDArray[np.int64]]) -> T:
    """One object of the objects of several sets of points, that say which points they are of; all else is alike in them."""
    count = sum(map(len, places))

    def filled(numbers: Sequence[Any]) -> Any:
        array = np.empty(count)
        for number, here in zip(numbers, places, strict=True):
            array[here] = raw(number)
        return float(array[0]) if (array == array[0]).all() else NumberColumn(array)

    found: T = _joined(things, filled)
    return found


def _none(_: str) -> bool:
    return False


def merged(things: Sequence[T], alike: Callable[[str], bool] = _none, whole: Callable[[str], bool] = _none) -> T:
    """One object of the objects of some points, a column wherever a float is not the same in all.

    Args:
        things: One of each point.
        alike: Of which fields of dataclasses the first one's stands for all, whatever theirs is.
        whole: Which fields of dataclasses are whole numbers that may differ, too: whoever reads them counts with them alone.

    Raises:
        NotAlikeError: They differ in something else than these and floats.
    """
    found: T = _joined(things, column_of, alike, whole)
    return found


def structure(thing: Any, alike: Callable[[str], bool] = _none, whole: Callable[[str], bool] = _none) -> Hashable:
    """What of an object `merged` wants to be the same at all points: everything but its floats; equal ones go together."""
    if isinstance(thing, float | NumberColumn):
        return float
    if is_dataclass(thing) and not isinstance(thing, type):
        kept = [each.name for each in fields(thing) if each.init and not alike(each.name)]
        return type(thing), tuple(
            float if whole(name) else structure(getattr(thing, name), alike, whole) for name in kept
        )
    if isinstance(thing, tuple):
        return tuple(structure(each, alike, whole) for each in thing)
    if isinstance(thing, Mapping):
        return frozenset((key, structure(value, alike, whole)) for key, value in thing.items())
    return thing if isinstance(thing, Hashable) else id(thing)


def _joined(
    things: Sequence[Any],
    filled: Callable[[Sequence[Any]], Any],
    alike: Callable[[str], bool] = _none,
    whole: Callable[[str], bool] = _none,
) -> Any:
    first = things[0]
    if all(thing is first for thing in things):
        return first
    if isinstance(first, float | NumberColumn):
        if not all(isinstance(thing, float | NumberColumn | int) for thing in things):
            raise NotAlikeError("a number at some points only")
        number = filled(things)
        return (
            first if not isinstance(number, NumberColumn) and isinstance(first, float) and number == first else number
        )
    if any(type(thing) is not type(first) for thing in things):
        raise NotAlikeError(f"{type(first).__name__} at some points only")
    if is_dataclass(first):
        changed = {}
        for each in fields(first):
            values = [getattr(thing, each.name) for thing in things]
            if each.init and not alike(each.name):
                counted = whole(each.name) and any(value != values[0] for value in values)
                new = filled(values) if counted else _joined(values, filled, alike, whole)
                if new is not values[0]:
                    changed[each.name] = new
        return replace(first, **changed) if changed else first  # type: ignore[type-var]
    if isinstance(first, tuple):
        if any(len(thing) != len(first) for thing in things):
            raise NotAlikeError("more parts at some points")
        parts = tuple(_joined(values, filled, alike, whole) for values in zip(*things, strict=True))
        return first if all(new is old for new, old in zip(parts, first, strict=True)) else parts
    if isinstance(first, Mapping):
        if any(thing.keys() != first.keys() for thing in things):
            raise NotAlikeError("other keys at some points")
        table = {key: _joined([thing[key] for thing in things], filled, alike, whole) for key in first}
        return first if all(table[key] is first[key] for key in first) else table
    if any(thing != first for thing in things):
        raise NotAlikeError(f"{type(first).__name__} is not the same at all points")
    return first
