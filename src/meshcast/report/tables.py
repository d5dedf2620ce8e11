"""`Table`: rows of a section as data, with the unit and the meaning of every column; one template draws all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

NARROW = 3  # columns that a phone has room for, of short cells
LONG = 32  # characters that are broken into lines
# What a cell is: a text, or a number in the SI unit of its column.
TableCell = str | float | int | bool | None


class TableColumn(TypedDict):
    """A column: its title, the unit of its numbers (empty for texts) and the glossary's word for what they mean."""

    title: str
    unit: str
    term: str


class Table(TypedDict):
    """A table, bounded: `note` says what was left out; `cards` whether its rows are too long to lie side by side on a phone."""

    name: str
    caption: str
    columns: list[TableColumn]
    rows: list[list[TableCell]]
    note: str
    cards: bool


def column(title: str, unit: str = "", term: str = "") -> TableColumn:
    """A column."""
    return {"title": title, "unit": unit, "term": term}


def table(
    name: str,
    caption: str,
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[TableCell]],
    *,
    most: int = 0,
    note: str = "",
) -> Table:
    """A table of the first `most` rows (all where that is 0), with a note that counts the others."""
    listed = [list(row) for row in rows]
    more = len(listed) - most if most else 0
    left = f"and {more:,} more {'row' if more == 1 else 'rows'}, each smaller than these" if more > 0 else ""
    return {
        "name": name,
        "caption": caption,
        "columns": list(columns),
        "rows": listed[:most] if more > 0 else listed,
        "note": "; ".join(part for part in (left, note) if part),
        "cards": len(columns) > NARROW
        or (len(columns) == NARROW and any(_is_long(cell) for row in listed for cell in row)),
    }


def _is_long(cell: TableCell) -> bool:
    return isinstance(cell, str) and len(cell) > LONG
