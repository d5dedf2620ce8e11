"""Rows in columns of whole numbers: a profile has millions of events, too many for an object each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Whole = npt.NDArray[np.int64]
LONG, SHORT, FLAG = "q", "i", "b"  # array's codes of numbers of 8, 4 and 1 bytes
NONE = -1  # of a place: there is none


class Words:
    """Things that are held once and known by their number: names, threads."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, thing: Any) -> int:
        """Its number, a new one where it was not seen before."""
        found = self._numbers.get(thing)
        if found is None:
            found = self._numbers[thing] = len(self.all)
            self.all.append(thing)
        return found


class ColumnTable:
    """Rows whose numbers lie in columns; `said` has what few rows say besides, by row.

    A column is an attribute of its name. They are Python's arrays, whose items are plain numbers; `numbers` gives one to numpy.
    """

    CODES: ClassVar[Mapping[str, str]]  # type codes of the columns by their names

    def __init__(self) -> None:
        self.said: dict[int, Mapping[str, Any]] = {}
        for name, code in self.CODES.items():
            setattr(self, name, array(code))
        self._appends = self._bound()

    def _bound(self) -> tuple[Callable[[int], None], ...]:
        """How each column is made longer: looked up once, not for every row."""
        return tuple(getattr(self, name).append for name in self.CODES)

    def add(self, *row: int) -> int:
        """Adds a row, its numbers in the order of the columns; gives its place."""
        place = len(self)
        for append, value in zip(self._appends, row, strict=True):
            append(value)
        return place

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.CODES))))

    def numbers(self, name: str) -> Whole:
        """A copy of a column for arithmetic."""
        return as_numbers(getattr(self, name))

    def put_in_order(self, *keys: Whole) -> None:
        """Sorts the rows by keys, the last of which counts first (as `numpy.lexsort`); equal rows keep their order."""
        order = np.lexsort(keys)
        for name, code in self.CODES.items():
            column = getattr(self, name)
            setattr(self, name, array(code, np.frombuffer(column, dtype=code)[order].tobytes()))
        self._appends = self._bound()
        if self.said:
            places = np.empty(len(order), dtype=np.int64)
            places[order] = np.arange(len(order))
            self.said = {int(places[row]): said for row, said in self.said.items()}


def as_numbers(column: array[int]) -> Whole:
    """A copy of an array for arithmetic, whatever its numbers take."""
    return np.frombuffer(column, dtype=column.typecode).astype(np.int64) if len(column) else np.empty(0, np.int64)


def filled(code: str, value: int, count: int) -> array[int]:
    """A column of one value."""
    return array(code, [value]) * count


def column(code: str, values: Iterable[int] | Whole) -> array[int]:
    """A column of some values."""
    if isinstance(values, np.ndarray):
        return array(code, values.astype(code).tobytes())
    return array(code, values)
