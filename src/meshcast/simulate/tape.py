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
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Literal

MOST_LINES = 20_000  # of a tape: more take longer to compile than a sweep would save


class TooLongError(Exception):
    """A tape has more lines than are worth it."""


class Number:
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


class Tape:
    """Lines of arithmetic on numbers that come from outside.

    Attributes:
        names: What the lines name that is no number: objects, functions and classes.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"inf": math.inf}
        self._lines: list[tuple[str, str, frozenset[str]]] = []  # what is named (nothing by a guard), how, from what
        self._known: dict[str, str] = {}  # names by what they are: nothing is worked out twice
        self._objects: dict[int, str] = {}

    @property
    def length(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def thing(self, thing: object) -> str:
        """The name of something that is no number, the same for the same object."""
        name = self._objects.get(id(thing))
        if name is None:
            name = self._objects[id(thing)] = f"o{len(self._objects)}"
            self.names[name] = thing
        return name

    def named(self, text: str, used: frozenset[str] = frozenset()) -> str:
        """The name of whatever an expression gives."""
        name = self._known.get(text)
        if name is None:
            name = self._known[text] = f"t{len(self._known)}"
            self._line(name, f"{name} = {text}", used)
        return name

    def number(self, text: str, value: float, used: frozenset[str] = frozenset()) -> Number:
        """The number that an expression gives, with its value this time."""
        return Number(self, self.named(text, used), value)

    def operation(self, left: Number | float, sign: str, right: Number | float, value: float) -> Number:
        """A number made of two."""
        return self.number(f"{_text(left)} {sign} {_text(right)}", value, _used(left, right))

    def chosen(self, left: Number | float, sign: Literal["<=", ">="], right: Number | float) -> Number:
        """The one of two numbers that a comparison chooses, whichever that is: no way parts here."""
        one, other = _value(left), _value(right)
        value = (one if one <= other else other) if sign == "<=" else (one if one >= other else other)
        return self.number(
            f"{_text(left)} if {_text(left)} {sign} {_text(right)} else {_text(right)}", value, _used(left, right)
        )

    def guard(self, left: Number | float, sign: str, right: Number | float, came_out: bool) -> bool:
        """Whether a comparison holds, as it does this time: the lines behind it are for that case alone."""
        return self.checked(f"{_text(left)} {sign} {_text(right)}", came_out, _used(left, right))

    def checked(self, text: str, came_out: bool, used: frozenset[str]) -> bool:
        """Whether a condition holds, as it does this time."""
        if text not in self._known:
            self._known[text] = ""
            self._line("", f"if not ({text}): return None" if came_out else f"if {text}: return None", used)
        return came_out

    def function(self, arguments: tuple[str, ...], result: object) -> Callable[..., Any]:
        """A function that does all of it again, with lines that matter for its result or for its conditions.

        Args:
            arguments: What the names are of that lines use and no line makes.
            result: What it returns: an object with numbers in it, which is made anew with theirs. None where a condition
                comes out otherwise.
        """
        used: set[str] = set()
        text = self._made(result, used)
        lines: list[str] = []
        for name, line, needs in reversed(self._lines):
            if not name or name in used:
                lines.append(line)
                used |= needs
        body = "\n    ".join([*reversed(lines), f"return {text}"])
        space = dict(self.names)
        exec(compile(f"def again({', '.join(arguments)}):\n    {body}\n", "<tape>", "exec"), space)
        made: Callable[..., Any] = space["again"]
        return made

    def _line(self, name: str, text: str, used: frozenset[str]) -> None:
        if len(self._lines) >= MOST_LINES:
            raise TooLongError
        self._lines.append((name, text, used))

    def _made(self, thing: object, used: set[str]) -> str:
        """An expression that makes an object with other numbers."""
        if isinstance(thing, Number):
            used.add(thing.name)
            return thing.name
        if isinstance(thing, float | int):
            return _text(thing)
        if isinstance(thing, tuple):
            return "(" + "".join(f"{self._made(each, used)}, " for each in thing) + ")"
        if is_dataclass(thing) and _has_numbers(thing):
            parts = (f"{each.name}={self._made(getattr(thing, each.name), used)}" for each in fields(thing))
            return f"{self.thing(type(thing))}({', '.join(parts)})"
        return self.thing(thing)


def larger(one: float, other: float) -> float:
    """The larger of two numbers, whichever it is: written down as one operation, where `max` would be a way to part at."""
    if isinstance(one, Number):
        return one.tape.chosen(one, ">=", other)
    if isinstance(other, Number):
        return other.tape.chosen(one, ">=", other)
    return one if one >= other else other


def smaller(one: float, other: float) -> float:
    """The smaller of two numbers, whichever it is."""
    if isinstance(one, Number):
        return one.tape.chosen(one, "<=", other)
    if isinstance(other, Number):
        return other.tape.chosen(one, "<=", other)
    return one if one <= other else other


def _has_numbers(thing: object) -> bool:
    if isinstance(thing, Number):
        return True
    if isinstance(thing, tuple):
        return any(map(_has_numbers, thing))
    return is_dataclass(thing) and any(_has_numbers(getattr(thing, each.name)) for each in fields(thing))


def _value(number: Number | float) -> float:
    return number.value if isinstance(number, Number) else number


def _text(number: Number | float) -> str:
    return number.name if isinstance(number, Number) else repr(number)


def _used(*numbers: Number | float) -> frozenset[str]:
    return frozenset(each.name for each in numbers if isinstance(each, Number))
