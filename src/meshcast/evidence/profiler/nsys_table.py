"""The tables that `nsys stats --format csv` prints, cell by cell: where they begin, what their columns are called, their numbers.

Releases differ in the heads of columns: the unit stands in parentheses, `Start (ns)`, `Start(nsec)`, or with `--timeunit` another
one, and scripts that copy the reports' own SQL have `Start:ts_ns`; what is a `Name` in one report is a `Kernel Name` or an
`Operation` in others. Lines before a head are what nsys says of its progress, an empty line ends a table, and another may follow.
Spreadsheets of other languages save semicolons between cells, commas in numbers and points between their thousands.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshcast.base import InputError

UNITS = {
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "seconds"), 1.0),
}
# What we call a column, and what reports do.
CALLED = {
    "start": ("Start", "Kernel Start"),
    "duration": ("Duration", "Kernel Dur"),
    "total": ("Total Time",),
    "instances": ("Instances",),
    "share": ("Time",),
    "name": ("Name", "Kernel Name", "Operation"),
    "device": ("Device", "DevId", "Device ID"),
    "context": ("Ctx", "Context ID"),
    "stream": ("Strm", "Stream", "StrmId", "Stream ID"),
    "thread": ("Tid", "TID"),
    **{name.lower(): (name,) for name in ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ")},
    "grid": ("GridXYZ",),
    "block": ("BlockXYZ",),
}
TIMES = ("start", "duration", "total")
LAUNCHES, SUMMARY = ("start", "duration", "name"), ("total", "instances", "name")
DELIMITERS = (",", ";", "\t")
_PARENTHESES = re.compile(r"^\s*(.*?)\s*(?:\(([^)]*)\))?\s*$")
_COLON = re.compile(r"^\s*(.*?):(?:ts|dur|ratio)_(\S+)\s*$")
_SPACES = re.compile(r"[\s'’_]")
_THOUSANDS = re.compile(r"^-?\d{1,3}(?:\.\d{3})+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysTable:
    """A table's columns and rows.

    Attributes:
        line: That of its head, from 1.
        columns: Places of the columns that are known, by our names.
        heads: What those columns are called in the file.
        units: Their units as text, "" where they have none.
        rows: Lines of rows with their cells.
        local: Whether numbers have commas for points.
        open_end: The line of the last row, where the file ends without the end of a line.
    """

    line: int
    columns: dict[str, int]
    heads: dict[str, str]
    units: dict[str, str]
    rows: tuple[tuple[int, list[str]], ...] = field(repr=False)
    local: bool = False
    open_end: int | None = None

    def has(self, names: Sequence[str]) -> bool:
        """Whether all of these columns are there."""
        return all(name in self.columns for name in names)

    def text(self, row: list[str], name: str) -> str:
        """A cell; empty where there is no such column."""
        return row[self.columns[name]].strip() if name in self.columns else ""

    def number(self, row: list[str], name: str) -> float:
        """A cell's number, as its language writes it.

        Raises:
            ValueError: It is none, or too large for one.
        """
        text = _SPACES.sub("", row[self.columns[name]])
        # A point is a thousand's where commas are decimal points; without any comma, where it parts groups of three.
        if not self.local:
            text = text.replace(",", "")
        elif "," in text or _THOUSANDS.match(text):
            text = text.replace(".", "").replace(",", ".")
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{self.heads[name]} is {text!r:.40}, which is no number")
        return number

    def seconds(self, row: list[str], name: str) -> float:
        """A cell's time.

        Raises:
            ValueError: It is none.
        """
        return self.number(row, name) * UNITS[self.units[name].lower()]

    def check_units(self, source: str) -> None:
        """Refuses times in units that nobody knows.

        Raises:
            InputError: There is one.
        """
        for name in TIMES:
            if name in self.columns and self.units[name].lower() not in UNITS:
                unit, head = self.units[name], self.heads[name]
                raise InputError(
                    f"column {head!r} " + (f"is in {unit!r}" if unit else "has no unit"),
                    where=f"{source}:{self.line}",
                    fix=f"let nsys write it as {head} (ns): " + ", ".join(UNITS),
                )


def is_table(text: str) -> bool:
    """Whether there is a table of launches or their sums in a text."""
    return any(_head(line) is not None for line in text.splitlines())


def tables(text: str, source: str) -> list[NsysTable]:
    """All tables of launches or their sums in a text.

    Raises:
        InputError: A row cannot be read as cells: a quoted name that is never closed.
    """
    lines = text.splitlines()
    found = []
    place = 0
    while place < len(lines):
        head = _head(lines[place])
        if head is None:
            place += 1
            continue
        cells, delimiter = head
        end = next((at for at in range(place + 1, len(lines)) if not lines[at].strip()), len(lines))
        found.append(
            _table(cells, delimiter, lines[place + 1 : end], place + 1, source, whole=_ended(text, end, lines))
        )
        place = end
    return found


def _ended(text: str, end: int, lines: Sequence[str]) -> bool:
    return end < len(lines) or text.endswith(("\n", "\r"))


def _head(line: str) -> tuple[list[str], str] | None:
    """The cells of a head and what parts them; None where a line is no head."""
    if "Name" not in line and "Operation" not in line:
        return None
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        columns = set(_columns(cells)[0])
        if set(LAUNCHES) <= columns or set(SUMMARY) <= columns:
            return cells, delimiter
    return None


def _columns(cells: Sequence[str]) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """Places, heads and units of the columns that are known."""
    said: dict[str, tuple[int, str]] = {}
    for place, cell in enumerate(cells):
        match = _COLON.match(cell) or _PARENTHESES.match(cell)
        assert match is not None  # the second matches anything
        said.setdefault(match[1], (place, match[2] or ""))
    chosen = {name: next((head for head in heads if head in said), None) for name, heads in CALLED.items()}
    known = {name: head for name, head in chosen.items() if head is not None}
    return {n: said[h][0] for n, h in known.items()}, known, {n: said[h][1] for n, h in known.items()}


def _table(cells: list[str], delimiter: str, body: list[str], line: int, source: str, *, whole: bool) -> NsysTable:
    columns, heads, units = _columns(cells)
    reader = csv.reader((f"{row}\n" for row in body), delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    while True:
        at = line + reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise InputError(
                f"a row whose quotes do not close ({error}): the table is cut off here, or damaged",
                where=f"{source}:{at}",
                fix="write the table again",
            ) from None
        if len(row) > len(cells) == columns["name"] + 1:
            row = [*row[: len(cells) - 1], delimiter.join(row[len(cells) - 1 :])]  # a name with commas and no quotes
        if len(row) != len(cells):
            raise InputError(
                f"a row of {len(row)} cells under a head of {len(cells)}: the table is cut off here, or damaged",
                where=f"{source}:{at}",
                fix="write the table again",
            )
        rows.append((at, row))
    return NsysTable(
        line=line,
        columns=columns,
        heads=heads,
        units=units,
        rows=tuple(rows),
        local=delimiter == ";",
        open_end=None if whole or not rows else rows[-1][0],
    )
