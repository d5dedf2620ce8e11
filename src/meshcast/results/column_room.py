"""Which columns of a table a terminal has room for: what may be cut and bars give way first, then the last columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshcast.results.sections import Column, Section

WIDE = 120  # columns of a terminal from which on tables have their extras
BAR = "█"
_FOLDED = 12  # columns of a terminal that text is still read in, a word a line
_CUT = 22  # columns of a terminal in which the beginning of a long name still tells it from others


def kept_columns(section: Section, width: int) -> list[int]:
    """The columns that a terminal has room for: what a row is of comes first, then numbers that are whole."""
    kept = [index for index, column in enumerate(section.columns) if width >= WIDE or not column.extra]
    if _natural_width(section, kept) > width:  # bars say nothing that the numbers beside them do not
        kept = [index for index in kept if not _is_bars(section, index)]
    while len(kept) > 2 and _least_width(section, kept) > width:
        kept.pop()
    return kept


def titles_left_out(section: Section, kept: Sequence[int]) -> list[str]:
    """Titles of columns that there was no room for; extras and bars aside, which say nothing new."""
    return [
        column.title
        for index, column in enumerate(section.columns)
        if index not in kept and not column.extra and column.title
    ]


def _natural_width(section: Section, kept: Sequence[int]) -> int:
    """Columns of a terminal that a section takes where nothing is folded."""
    texts = ([section.columns[index].title, *(row[index] for row in section.rows)] for index in kept)
    return sum(2 + max(map(len, each)) for each in texts)


def _least_width(section: Section, kept: Sequence[int]) -> int:
    """Columns of a terminal below which a section cannot be read: numbers are not folded, nor is what a row is of.

    A name that may be cut is: whoever reads the longest kernels wants their times more than the ends of their names.
    """
    names = naming_columns(section, kept)

    def least(index: int) -> int:
        width, column = _natural_width(section, [index]), section.columns[index]
        if column.align == "right":
            return width
        if index in names:
            return min(width, _CUT) if column.cut else width
        return min(width, _FOLDED)

    return sum(map(least, kept))


def naming_columns(section: Section, kept: Sequence[int]) -> list[int]:
    """The columns that say what a row is of: the first, and all others before the first number."""
    numbers = (place for place, index in enumerate(kept) if section.columns[index].align == "right")
    return list(kept[: max(next(numbers, 1), 1)])


def stay_whole(section: Section, kept: Sequence[int], width: int) -> list[tuple[Column, bool]]:
    """Columns, and which are not folded: numbers, and where there is room what a row is of, unless it may be cut."""
    names = naming_columns(section, kept) if _least_width(section, kept) <= width else []
    columns = ((index, section.columns[index]) for index in kept)
    return [(each, each.align == "right" or (index in names and not each.cut)) for index, each in columns]


def _is_bars(section: Section, index: int) -> bool:
    """Whether a column has bars and nothing else."""
    cells = {row[index][:1] for row in section.rows if row[index]}
    return cells == {BAR}


def has_head(section: Section) -> bool:
    """Whether any column has a title."""
    return any(column.title for column in section.columns)
