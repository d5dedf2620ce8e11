"""A `Tape`: what a piece of arithmetic did with its numbers, written down while it runs, to be done again with others.

A sweep simulates one program with thousands of times, and nearly always in the same order of events: the times differ by a few
per cent, and who ends before whom does not. So the simulation is run once with `Number`s in the place of floats. Each carries
its value, and writes down every sum and product that it takes part in; a comparison writes down how it came out. What
results is a straight line of arithmetic, which is compiled into one function (`Tape.function`). It does the very same operations
in the same order, so that its answers are those of the simulation to the last bit; and where a comparison comes out otherwise,
it gives up, as the simulation would have gone another way from there.

The same lines are done for many points at once (`TapeColumns`), each number an array with a place for each point: then a
comparison does not give up, but notes at which points it has come out as it did.

This is what tracing compilers do (Gal et al., "Trace-based just-in-time type specialization", PLDI 2009): one way through the
code, with guards where others branch off.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from meshcast.base import Sign, Standing, number_of

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

    def named(self, text: str, asked: Asked, used: tuple[str, ...] = ()) -> str:
        """The name of whatever an expression gives.

        Args:
            text: The expression.
            asked: The same as a function, of the arguments and of what is used.
            used: Names in it.
        """
        name = self._known.get(text)
        if name is None:
            name = self._known[text] = f"t{len(self._known)}"
            self._write((name, text, asked, used))
        return name

    def number(self, text: str, value: float, asked: Asked, used: tuple[str, ...] = ()) -> Number:
        """The number that an expression gives, with its value this time."""
        return Number(self, self.named(text, asked, used), value)

    def argument(self, text: str, value: float) -> Number:
        """The number that an argument is, the first for which that is asked."""
        return self.number(text, value, lambda arguments, _: arguments[text])

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

    def checked(self, text: str, came_out: bool, asked: Asked, used: tuple[str, ...]) -> bool:
        """Whether a condition holds, as it does this time."""
        name = self.named(text, asked, used)
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
    if callable(sign):
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
    if callable(sign):
        assert isinstance(right, tuple)
        return right
    return tuple(each for each in (left, right) if isinstance(each, str))


class TapeColumns:
    """A tape's lines on arrays, with a place for each point: no function is compiled, and each line is one operation of NumPy."""

    def __init__(self, tape: Tape, lines: int, first: object, whole: object) -> None:
        """A tape whose first lines give one result, and all of them another."""
        self._results = first, whole
        used = {each.name for result in self._results for each in _numbers(result)}
        needed, early = tape.needed(used), {id(line) for line in tape.lines[:lines]}
        self._places: dict[str, int] = {}
        self._constants: list[Any] = []
        self._first: list[_TapeStep] = []
        self._rest: list[_TapeStep] = []
        self._conditions: tuple[list[int], list[int]] = ([], [])
        for line in needed:
            before = id(line) in early
            work = self._work(line)
            (self._first if before else self._rest).append(work)
            if not line[0]:
                self._conditions[0 if before else 1].append(work.place)

    def run(self, points: int, arguments: dict[str, Any], begun: Slots | None = None, *, whole: bool) -> Along:
        """The lines done at some points.

        Args:
            points: How many there are.
            arguments: What the names are that lines use and no line makes.
            begun: What the first lines came to, where these were done already.
            whole: Whether the result of all lines is asked for, and not that of the first ones.
        """
        slots: Slots = list(self._constants) if begun is None else begun
        kept = np.ones(points, dtype=bool)
        parts = zip((self._first, self._rest), self._conditions, strict=True)
        for number, (works, conditions) in enumerate(parts):
            if number or begun is None:
                for do, left, right, place in works:
                    if right is not None:
                        slots[place] = do(slots[left], slots[right])
                    else:
                        slots[place] = do(arguments, slots)
            for place in conditions:
                kept &= slots[place]
            if not whole or not kept.any():
                break
        return Along(kept, self._remade(self._results[whole], slots) if kept.any() else None, slots)

    def _work(self, line: Line) -> _TapeStep:
        name, left, sign, right = line
        place = self._new(name)
        if not callable(sign):
            return _TapeStep(DOES[sign], self._place(left), self._place(right), place)
        assert isinstance(right, tuple)
        used = [self._places[each] for each in right]
        ask: Any = sign
        return _TapeStep(lambda arguments, slots: ask(arguments, [slots[each] for each in used]), 0, None, place)

    def _new(self, name: str = "", value: Any = None) -> int:
        self._constants.append(value)
        if name:
            self._places[name] = len(self._constants) - 1
        return len(self._constants) - 1

    def _place(self, operand: object) -> int:
        if isinstance(operand, str):
            return self._places[operand]
        return self._new(value=operand)

    def _remade(self, thing: Any, slots: Sequence[Any]) -> Any:
        """An object with the numbers of these points."""
        if isinstance(thing, Number):
            return number_of(slots[self._places[thing.name]])
        if isinstance(thing, tuple):
            return tuple(self._remade(each, slots) for each in thing)
        if is_dataclass(thing) and not isinstance(thing, type) and _has_numbers(thing):
            return type(thing)(**{each.name: self._remade(getattr(thing, each.name), slots) for each in fields(thing)})
        return thing


Slots = list[Any]


class Along(NamedTuple):
    """What comes of some points along a tape.

    Attributes:
        kept: At which of them conditions come out as they did.
        result: What holds for these; None where there are none.
        slots: What every line came to.
    """

    kept: Any
    result: Any
    slots: Slots


class _TapeStep(NamedTuple):
    """One line: what is done with which places, and where the result goes; without a second place it asks the arguments."""

    do: Callable[..., Any]
    left: int
    right: int | None
    place: int


# What is named (nothing by a condition); an operand, a sign and an operand, or an expression, what asks for it, and names in it.
Operand = str | float
Asked = Callable[[dict[str, Any], Sequence[Any]], Any]
Line = tuple[str, Operand, str | Asked, Operand | tuple[str, ...]]

OTHERWISE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
# Python's own operators: of numbers that are the same at all points they take a tenth of what NumPy's functions do. But a
# quotient by nothing, at points that go another way, is no error.
DOES: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": np.divide, "min": np.minimum, "max": np.maximum,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


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
