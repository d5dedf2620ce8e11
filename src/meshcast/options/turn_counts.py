"""How often loops run whose count is not in the program: a number, or a range of them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

from meshcast.base import UsageError, checked

LARGEST = 1 << 63


class TurnRange(NamedTuple):
    """From so many turns to so many."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @property
    def middle(self) -> int:
        """Half-way: what is predicted, with both ends beside it."""
        return (self.low + self.high) // 2


Turns = int | TurnRange


def turns_read(text: str, flag: str) -> Turns:
    """`N` or `LOW..HIGH`.

    Raises:
        UsageError: It is neither, or goes down.
    """
    low, dots, high = text.partition("..")
    if not dots:
        return _whole(low, flag, text)
    found = TurnRange(_whole(low, flag, text), _whole(high, flag, text))
    if found.high < found.low:
        raise UsageError(f"{text!r} ends before it begins", where=flag, fix="write the lower number first")
    return found.low if found.low == found.high else found


def read_turns(name: str, value: Any) -> Mapping[str, Turns]:
    """A dict of turns: integers, texts as `5..50`, or pairs of integers.

    Raises:
        UsageError: It is of another kind.
    """
    found: Mapping[str, Any] = checked(name, value, (Mapping,))
    return {key: _of(f"{name}[{key!r}]", each, name) for key, each in found.items()}


def predicted_turns(turns: Mapping[str, Turns]) -> dict[str, int]:
    """The number of turns that is predicted, by name: of a range its middle."""
    return {name: each.middle if isinstance(each, TurnRange) else each for name, each in turns.items()}


def _of(what: str, value: Any, name: str) -> Turns:
    if isinstance(value, str):
        return turns_read(value, name)
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(pair) > 2 or not all(isinstance(each, Integral) and not isinstance(each, bool) for each in pair):
        raise UsageError(
            f"{what} is an integer, a range as '5..50' or a pair of integers, not {value!r}",
            where=name,
            fix="such as {'*': 8}",
        )
    return turns_read("..".join(str(int(each)) for each in pair), name)


def _whole(text: str, flag: str, told: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not 1 <= value < LARGEST:
        raise UsageError(
            f"{told!r} is not a positive integer below 2^63, nor a range of them",
            where=flag,
            fix="give a number from 1 on, or a range such as 5..50",
        )
    return value
