"""A `Tape`: what a piece of arithmetic did with its numbers, written down while it runs, to be done again with others.

A sweep simulates one program with thousands of times, and nearly always in the same order of events: the times differ by a few
per cent, and who ends before whom does not. So the simulation is run once with `Number`s in the place of floats. Each carries
its value, and writes down every sum and product that it takes part in; a comparison writes down how it came out. What
results is a straight line of arithmetic, which is compiled into one function (`Tape.function`). It does the very same operations
in the same order, so that its answers are those of the simulation to the last bit; and where a comparison comes out otherwise,
it gives up, as the simulation would have gone another way from there.

This is what tracing compilers do (Gal et al., "Trace-based just-in-time type specialization", PLDI 2009): one way through the
code, with guards where others branch off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from meshcast.base import Sign, Standing

MOST_LINES = 20_000  # of a tape: more take longer to compile than a sweep would save


class TooLongError(Exception):
    """A tape has more lines than are worth it."""


class Number(Standing):
    """A float that writes down what is done with it."""

    __slots__ = ("name", "tape", "value")

    def __init__(self, tape: Tape, name: str, value: float) -> None:
        self.tape, self.name, self.value = tape, name, value

    def __add__(self, other: Number | float) -> Number:
        return self.tape.operation(self, "+", other, self.value + _value(other))

    def __radd__(self, other: float) -> Number:
        return self.tape.operation(other, "+", self, other + self.value)

    def __sub__(self, other: Number | float) -> Number:
        return self.tape.operation(self, "-", other, self.value - _value(other))

    def __rsub__(self, other: float) -> Number:
        return self.tape.operation(other, "-", self, other - self.value)

    def __mul__(self, other: Number | float) -> Number:
        return self.tape.operation(self, "*", other, self.value * _value(other))

    def __rmul__(self, other: float) -> Number:
        return self.tape.operation(other, "*", self, other * self.value)

    def __truediv__(self, other: Number | float) -> Number:
        return self.tape.operation(self, "/", other, self.value / _value(other))

    def __rtruediv__(self, other: float) -> Number:
        return self.tape.operation(other, "/", self, other / self.value)

    def __lt__(self, other: Number | float) -> bool:
        return self.tape.guard(self, "<", other, self.value < _value(other))

    def __le__(self, other: Number | float) -> bool:
        return self.tape.guard(self, "<=", other, self.value <= _value(other))

    def __gt__(self, other: Number | float) -> bool:
        return self.tape.guard(self, ">", other, self.value > _value(other))

    def __ge__(self, other: Number | float) -> bool:
        return self.tape.guard(self, ">=", other, self.value >= _value(other))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number | float | int):
            return NotImplemented
        return self.tape.guard(self, "==", other, self.value == _value(other))

    def __ne__(self, other: object) -> bool:
        if not isinstance(other, Number | float | int):
            return NotImplemented
        return self.tape.guard(self, "!=", other, self.value != _value(other))

    def __bool__(self) -> bool:
        return self.tape.guard(self, "!=", 0.0, self.value != 0.0)

    __hash__ = None  # type: ignore[assignment]  # a key would have to be looked for again with every other value

    def chosen(self, left: Number | float, sign: Sign, right: Number | float) -> Number:
        """The one of two numbers that a comparison chooses."""
        return self.tape.chosen(left, sign, right)


class Tape:
    """Lines of arithmetic on numbers that come from outside.

    Attributes:
        names: What the lines name that is no number: objects, functions and classes.
        lines: What is done, in order.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"inf": math.inf}
        self.lines: list[Line] = []
        self._known: dict[object, str] = {}  # names by what they are: nothing is worked out twice
        self._objects: dict[int, str] = {}

    @property
    def length(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def thing(self, thing: object) -> str:
        """The name of something that is no number, the same for the same object."""
        name = self._objects.get(id(thing))
        if name is None:
            name = self._objects[id(thing)] = f"o{len(self._objects)}"
            self.names[name] = thing
        return name

    def named(self, text: str, used: tuple[str, ...] = ()) -> str:
        """The name of whatever an expression gives, in which some names are used."""
        name = self._known.get(text)
        if name is None:
            name = self._known[text] = f"t{len(self._known)}"
            self._write((name, text, None, used))
        return name

    def number(self, text: str, value: float, used: tuple[str, ...] = ()) -> Number:
        """The number that an expression gives, with its value this time."""
        return Number(self, self.named(text, used), value)

    def argument(self, text: str, value: float) -> Number:
        """The number that an argument is, the first for which that is asked."""
        return self.number(text, value)

    def operation(self, left: Number | float, sign: str, right: Number | float, value: float) -> Number:
        """A number made of two."""
        key = _operand(left), sign, _operand(right)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = f"t{len(self._known)}"
            self._write((name, *key))
        return Number(self, name, value)

    def chosen(self, left: Number | float, sign: Sign, right: Number | float) -> Number:
        """The one of two numbers that a comparison chooses, whichever that is: no way parts here."""
        one, other = _value(left), _value(right)
        value = (one if one <= other else other) if sign == "<=" else (one if one >= other else other)
        return self.operation(left, "min" if sign == "<=" else "max", right, value)

    def guard(self, left: Number | float, sign: str, right: Number | float, came_out: bool) -> bool:
        """Whether a comparison holds, as it does this time: the lines behind it are for that case alone."""
        key = _operand(left), sign, _operand(right)
        if key not in self._known:
            self._known[key] = ""
            self._write(("", key[0], sign if came_out else OTHERWISE[sign], key[2]))
        return came_out

    def checked(self, text: str, came_out: bool, used: tuple[str, ...]) -> bool:
        """Whether a condition holds, as it does this time."""
        name = self.named(text, used)
        if (name, came_out) not in self._known:
            self._known[name, came_out] = ""
            self._write(("", name, "==", came_out))
        return came_out

    def function(self, arguments: tuple[str, ...], result: object, *, lines: int | None = None) -> Callable[..., Any]:
        """A function that does all of it again, with lines that matter for its result or for its conditions.

        Args:
            arguments: What the names are of that lines use and no line makes.
            result: What it returns: an object with numbers in it, which is made anew with theirs. None where a condition
                comes out otherwise.
            lines: How many lines, from the first, the result takes; None: all.
        """
        used: set[str] = set()
        text = self._made(result, used)
        body = "\n    ".join([*map(_alone, self.needed(used, lines)), f"return {text}"])
        space = dict(self.names)
        exec(compile(f"def again({', '.join(arguments)}):\n    {body}\n", "<tape>", "exec"), space)
        made: Callable[..., Any] = space["again"]
        return made

    def needed(self, used: set[str], lines: int | None = None) -> list[Line]:
        """Lines that matter for some names, or for conditions; what these take is added to the names."""
        found: list[Line] = []
        for line in reversed(self.lines[:lines]):
            if not line[0] or line[0] in used:
                found.append(line)
                used.update(_takes(line))
        return found[::-1]

    def _write(self, line: Line) -> None:
        if len(self.lines) >= MOST_LINES:
            raise TooLongError
        self.lines.append(line)

    def _made(self, thing: object, used: set[str]) -> str:
        """An expression that makes an object with other numbers."""
        if isinstance(thing, Number):
            used.add(thing.name)
            return thing.name
        if isinstance(thing, float | int):
            return repr(thing)
        if isinstance(thing, tuple):
            return "(" + "".join(f"{self._made(each, used)}, " for each in thing) + ")"
        if is_dataclass(thing) and _has_numbers(thing):
            parts = (f"{each.name}={self._made(getattr(thing, each.name), used)}" for each in fields(thing))
            return f"{self.thing(type(thing))}({', '.join(parts)})"
        return self.thing(thing)


def _alone(line: Line) -> str:
    """A line as Python does it with floats."""
    name, left, sign, right = line
    if sign is None:
        return f"{name} = {left}"
    one, other = _written(left), _written(right)
    if not name:
        return f"if not ({one} {sign} {other}): return None"
    if sign in ("min", "max"):
        return f"{name} = {one} if {one} {'<=' if sign == 'min' else '>='} {other} else {other}"
    return f"{name} = {one} {sign} {other}"


def _takes(line: Line) -> tuple[str, ...]:
    """The names that a line uses."""
    _, left, sign, right = line
    if sign is None:
        assert isinstance(right, tuple)
        return right
    return tuple(each for each in (left, right) if isinstance(each, str))


# What is named (nothing by a condition); an operand, a sign and an operand, or an expression, no sign, and names in it.
Operand = str | float
Line = tuple[str, Operand, str | None, Operand | tuple[str, ...]]

OTHERWISE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _numbers(thing: object) -> Iterator[Number]:
    if isinstance(thing, Number):
        yield thing
    elif isinstance(thing, tuple):
        for each in thing:
            yield from _numbers(each)
    elif is_dataclass(thing):
        for one in fields(thing):
            yield from _numbers(getattr(thing, one.name))


def _has_numbers(thing: object) -> bool:
    return next(_numbers(thing), None) is not None


def _value(number: Number | float) -> float:
    return number.value if isinstance(number, Number) else number


def _operand(number: Number | float) -> Operand:
    return number.name if isinstance(number, Number) else number


def _written(operand: object) -> str:
    return operand if isinstance(operand, str) else repr(operand)
