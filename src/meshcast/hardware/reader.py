"""Typed access to a document: what the loader asks for is the schema, and whatever was not asked for is an error.

A schema library would do the checking too, but importing one and building its models costs more than 100 ms, ten times
what reading a device takes; and half of the work here, units, sources and line numbers, would remain.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from meshcast.base import Dimension, InputError, nearest, parse_quantity
from meshcast.hardware.device import Fact, Source
from meshcast.hardware.document import Document, Key

# Origins that need no entry under [sources]. The first two must say how in a note; the third is a user's own number.
UNSOURCED = ("derived", "assumption", "user")


MOST = 1 << 31  # of what is counted, unless the schema says less


class Reader:
    """Reads one document. Problems are collected, with placeholders for bad values; `finish` raises them together."""

    def __init__(self, document: Document) -> None:
        self.facts: dict[str, Fact] = {}
        self._document = document
        self._keys: dict[str, Key] = {}
        self._asked: set[Key] = set()
        self._problems: list[tuple[str, str]] = []

    def text(self, *key: str | int, default: str | None = None) -> str:
        """The string at `key`; without a `default` it must be there."""
        value = self._value(key)
        if value is None:
            if default is None:
                self._problem(key, f"missing key {_dotted(key)!r}")
            return default or ""
        if not isinstance(value, str):
            self._problem(key, f"{_dotted(key)}: expected text in quotes, got {value!r}")
            return ""
        return value

    def choice(self, *key: str | int, among: Iterable[str], default: str | None = None) -> str:
        """The string at `key`, one of `among`; without a `default` it must be there. What is refused is never returned."""
        value, allowed = self._value(key), tuple(among)
        if value in allowed:
            return str(value)
        if value is None and default is None:
            self._problem(key, f"missing key {_dotted(key)!r}")
        elif value is not None:
            self._problem(key, f"{_dotted(key)}: expected one of {', '.join(allowed)}, got {value!r}")
        return allowed[0] if default is None else default

    def texts(self, *key: str | int) -> tuple[str, ...]:
        """The list of strings at `key`, or nothing."""
        value = self._value(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._problem(key, f"{_dotted(key)}: expected a list of text, got {value!r}")
            return ()
        return tuple(value)

    def flag(self, *key: str | int, default: bool = False) -> bool:
        """The boolean at `key`, or the default."""
        value = self._value(key)
        if not (value is None or isinstance(value, bool)):  # 1 equals True, and means nothing here
            self._problem(key, f"{_dotted(key)}: expected true or false, got {value!r}")
        return default if value is None else value is True

    def whole(self, *key: str | int, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """The whole number at `key`, written without quotes or unit; without a `default` it must be there."""
        value = self._value(key)
        if value is None:
            if default is None:
                self._problem(key, f"missing key {_dotted(key)!r}")
            return least if default is None else default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            large = isinstance(value, int) and value > most
            limit = f", up to {most:,}" if large and most == MOST else _up_to(most)
            self._problem(key, f"{_dotted(key)}: expected a whole number of at least {least}{limit}, got {value!r}")
            return least
        return value

    def length(self, *key: str | int) -> int:
        """How many tables the array at `key` has."""
        value = self._lookup(key)
        return len(value) if isinstance(value, list) else 0

    def names(self, *key: str | int) -> tuple[str, ...]:
        """The keys of the table at `key`, or nothing."""
        value = self._lookup(key)
        return tuple(value) if isinstance(value, dict) else ()

    def quantity(self, *key: str | int, of: Dimension, may_be_zero: bool = False) -> float:
        """The quantity at `key` in SI units, which must be there."""
        value = self.optional(*key, of=of, may_be_zero=may_be_zero)
        if value is None:
            self._problem(key, f"missing key {_dotted(key)!r}")
        return value or 0.0

    def optional(self, *key: str | int, of: Dimension, may_be_zero: bool = False) -> float | None:
        """The quantity at `key` in SI units, or None; zero only where the models do not divide by it."""
        written = self._written(key)
        if written is None:
            return None
        try:
            value = parse_quantity(written["value"], of)
        except InputError as error:
            self._problem(key, f"{_dotted(key)}: {error.message}; {error.fix}")
            return 0.0
        if value == 0 and not may_be_zero:
            self._problem(key, f"{_dotted(key)}: expected more than zero, got {written['value']!r}")
        self._record(key, value, str(of), written)
        return value

    def count(self, *key: str | int, default: int | None = None, most: int = MOST) -> int:
        """The whole number at `key`; without a `default` it must be there."""
        if default is None:
            value = self.quantity(*key, of=Dimension.COUNT)
        else:
            found = self.optional(*key, of=Dimension.COUNT)
            value = float(default) if found is None else found
        if not value.is_integer():
            self._problem(key, f"{_dotted(key)}: expected a whole number, got {value:g}")
        if value > most:
            self._problem(key, f"{_dotted(key)}: expected a whole number{_up_to(most)}, got {value:g}")
            return 1  # a placeholder, as everywhere: nothing is made in so large a number before `finish`
        return int(value)

    def by_dtype(
        self, *key: str | int, of: Dimension, dtypes: Iterable[str], may_be_zero: bool = False
    ) -> dict[str, float]:
        """The quantities of the table at `key`, by dtype."""
        present = self.names(*key)
        return {
            dtype: self.quantity(*key, dtype, of=of, may_be_zero=may_be_zero)
            for dtype in dtypes
            if self._ask((*key, dtype)) in present
        }

    def shape(self, *key: str | int) -> tuple[int, ...]:
        """The shape of a torus at `key` ("16x20x28"), or nothing."""
        written = self._written(key)
        if written is None:
            return ()
        sides = written["value"].split("x")
        if not all(re.fullmatch(r"0*[1-9]\d{0,8}", side, re.ASCII) for side in sides):
            self._problem(key, f"{_dotted(key)}: expected a shape like '16x20x28', got {written['value']!r}")
            return ()
        self._record(key, float(len(sides)), "axes", written)
        return tuple(map(int, sides))

    def ratio(self, *key: str | int, default: float) -> float:
        """The ratio at `key` ("3:1", or "1.5" for 1.5 to 1), or `default`."""
        written = self._written(key)
        if written is None:
            return default
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(?::(\d{1,9}(?:\.\d{1,9})?))?", written["value"], re.ASCII)
        over, under = (float(found[1]), float(found[2] or 1)) if found else (0.0, 0.0)
        if not over or not under:
            self._problem(key, f"{_dotted(key)}: expected a ratio like '3:1', got {written['value']!r}")
            return default
        self._record(key, over / under, "ratio", written)
        return over / under

    def version(self, *key: str | int, example: str) -> str:
        """The version at `key` ("9.0a"), which must be there."""
        written = self._written(key)
        if written is None:
            self._problem(key, f"missing key {_dotted(key)!r}")
            return ""
        found = re.fullmatch(r"(\d{1,9}\.\d{1,9})[a-z]?", written["value"], re.ASCII)
        if found is None:
            self._problem(key, f"{_dotted(key)}: expected a version like {example!r}, got {written['value']!r}")
            return ""
        self._record(key, float(found[1]), "version", written)
        return found[0]

    def sources(self) -> dict[str, Source]:
        """The table [sources]; every fact read so far must point into it."""
        found = {
            name: Source(
                title=self.text("sources", name, "title"),
                url=self.text("sources", name, "url", default="") or None,
                note=self.text("sources", name, "note", default="") or None,
            )
            for name in self.names("sources")
        }
        for dotted, fact in self.facts.items():
            key = self._keys[dotted]
            if fact.source not in (*found, *UNSOURCED):
                hint = nearest(fact.source, (*found, *UNSOURCED))
                self._problem(key, f"{dotted}: source {fact.source!r} is not under [sources], {hint}")
            elif fact.source in ("derived", "assumption") and not fact.note:
                self._problem(key, f"{dotted}: source {fact.source!r} needs a note that says how")
        return found

    def reject(self, key: Key, message: str) -> None:
        """Adds a problem that the loader found at `key`."""
        self._problem(key, message)

    def finish(self, *, fix: str | None = None) -> None:
        """Raises InputError for all problems and for keys that nobody asked for; the first one gives the place.

        Args:
            fix: What helps with any of them.
        """
        around = {key[:depth] for key in self._asked for depth in range(1, len(key))}
        strange = list(self._unknown(self._document.data, (), around))
        known = {_dotted(key, indices=False) for key in self._asked} if strange else set()
        unknown = [(self._document.place(key), self._why_unknown(key, known)) for key in strange]
        # Unknown keys first: a misspelt key is also a missing one, and the spelling is the cause.
        problems = list(dict.fromkeys(unknown + self._problems))
        if not problems:
            return
        (where, message), *others = problems
        raise InputError(message + "".join(f"\n  also {place}: {text}" for place, text in others), where=where, fix=fix)

    def _why_unknown(self, key: Key, known: Iterable[str]) -> str:
        *table, last = key
        if isinstance(last, int) and any(asked[: len(table)] == tuple(table) for asked in self._asked):
            name = _dotted(tuple(table))
            return f"{name}: expected one table, got a list of them: write [{name}], not [[{name}]]"
        return f"unknown key {_dotted(key)!r}, {nearest(_dotted(key, indices=False), known)}"

    def _unknown(self, data: Any, prefix: Key, around: set[Key]) -> Iterator[Key]:
        """Keys below a prefix that nobody asked for; `around` are the tables of those that somebody did."""
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for part, value in items:
            key = (*prefix, part)
            if key in self._asked:
                continue
            if isinstance(value, dict | list) and key in around:
                yield from self._unknown(value, key, around)
            else:
                yield key

    def _ask(self, key: Key) -> str | int:
        self._asked.add(key)
        return key[-1]

    def _value(self, key: Key) -> Any:
        self._ask(key)
        return self._lookup(key)

    def _lookup(self, key: Key) -> Any:
        value: Any = self._document.data
        for part in key:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _written(self, key: Key) -> dict[str, Any] | None:
        """A quantity as the file has it: value, source and note; text alone is a user's own number."""
        value = self._value(key)
        if value is None:
            return None
        written = value if isinstance(value, dict) else {"value": value, "source": "user"}
        if extra := set(written) - {"value", "source", "note"}:
            self._problem(key, f"{_dotted(key)}: a quantity has value, source and note, not {', '.join(sorted(extra))}")
        # A bare number goes on as text, so that the message says which unit it lacks.
        return {"source": "user", "note": None, **written, "value": str(written.get("value", ""))}

    def _record(self, key: Key, value: float, unit: str, written: dict[str, Any]) -> None:
        self._keys[_dotted(key)] = key
        self.facts[_dotted(key)] = Fact(
            value=value, unit=unit, text=written["value"], source=str(written["source"]), note=written["note"]
        )

    def _problem(self, key: Key, message: str) -> None:
        self._problems.append((self._document.place(key), message))


def _up_to(most: int) -> str:
    return "" if most == MOST else f", up to {most}"


@functools.lru_cache(maxsize=4096)
def _dotted(key: Key, *, indices: bool = True) -> str:
    return ".".join(str(part) for part in key if indices or isinstance(part, str))
