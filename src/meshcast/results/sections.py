"""Titled tables for people, shown in colour on a terminal, as plain text, or as HTML; `printer` makes them of a prediction."""

from __future__ import annotations

import html
import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from meshcast.results.column_room import BAR, WIDE, has_head, kept_columns, stay_whole, titles_left_out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TEXT_WIDTH = 100
_ASCII = str.maketrans({BAR: "#", "…": "~"})

Rows = Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Numbers go right; in a narrow terminal text that may be cut gives way, and extras are left out."""

    title: str
    align: Literal["left", "right"] = "left"
    cut: bool = False
    extra: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled table with an optional explanation; a row without a first cell explains the row above it."""

    title: str = ""
    columns: tuple[Column, ...] = (Column(""), Column(""))
    rows: Rows = ()
    note: str = ""
    emphasis: bool = False


def columns(*titles: str) -> tuple[Column, ...]:
    """Columns by their titles: `>` stands before numbers, `~` before text that may be cut, `?` before an extra."""
    styles = {">": Column("", "right"), "~": Column("", cut=True), "?": Column("", cut=True, extra=True)}
    return tuple(replace(styles.get(title[:1], Column("")), title=title.lstrip(">~?")) for title in titles)


def capped_lines(section: Section, limit: int) -> Section:
    """The section with its first `limit` rows, and a note that counts the others."""
    more = len(section.rows) - limit
    if more <= 0:
        return section
    note = f"and {more:,} more" + (f"; {section.note}" if section.note else "")
    return replace(section, rows=section.rows[:limit], note=note)


def sections_html(sections: Iterable[Section]) -> str:
    """Sections as HTML that needs nothing else."""
    body = "".join(map(_html, sections))
    return f'<div style="font-variant-numeric:tabular-nums">{body}</div>'


def print_sections(sections: Iterable[Section]) -> None:
    """Prints sections in colour on a terminal, as plain text elsewhere."""
    from rich.console import Console

    # Shapes such as f32[8,4] and names are no markup.
    console = Console(markup=False, emoji=False, highlight=False)
    if console.is_terminal and console.encoding.startswith("utf"):
        _render(console, sections)
        return
    # A pipe has no width: 80 columns would cut what a file can hold.
    width = console.width if console.is_terminal or "COLUMNS" in os.environ else WIDE
    plain = sections_text(sections, width=width)
    if not console.encoding.startswith("utf"):
        plain = plain.translate(_ASCII).encode(console.encoding, "replace").decode(console.encoding)
    sys.stdout.write(plain + "\n")


def sections_text(sections: Iterable[Section], *, width: int = TEXT_WIDTH) -> str:
    """Sections as plain text, without colour or trailing blanks."""
    from rich.console import Console

    out = io.StringIO()
    _render(Console(file=out, width=width, color_system=None, markup=False, emoji=False, highlight=False), sections)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def _render(console: Console, sections: Iterable[Section]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for index, section in enumerate(sections):
        if index:
            console.print()
        if section.title:
            console.print(Text(section.title, style="bold"))
        if section.rows:
            kept = kept_columns(section, console.width)
            console.print(Padding(_rich_table(section, kept, console.width), (0, 0, 0, 2), expand=False))
            if left_out := titles_left_out(section, kept):
                said = f"a wider terminal also has {', '.join(left_out)}"
                console.print(Padding(Text(said, style="dim"), (0, 0, 0, 2)))
        if section.note:
            console.print(Padding(Text(section.note, style="dim"), (0, 0, 0, 2)))


def _rich_table(section: Section, kept: Sequence[int], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    gap = 2 if width >= TEXT_WIDTH or len(kept) <= 5 else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim", show_header=has_head(section))
    for column, whole in stay_whole(section, kept, width):
        table.add_column(column.title, justify=column.align, no_wrap=whole, overflow="fold")
    for row in section.rows:
        cells = [Text(row[index], style="cyan" if row[index].startswith(BAR) else "") for index in kept]
        for cell, index in zip(cells, kept, strict=True):
            if section.columns[index].cut:
                cell.no_wrap, cell.overflow = True, "ellipsis"
        table.add_row(*cells, style="dim" if not row[0] else "bold green" if section.emphasis else "")
    return table


def _html(section: Section) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        pairs = zip(cells, section.columns, strict=False)
        style = "padding:0 .8em 0 0;text-align:"
        filled = "".join(f'<{tag} style="{style}{c.align}">{html.escape(cell)}</{tag}>' for cell, c in pairs)
        return f"<tr>{filled}</tr>"

    parts = [f"<b>{html.escape(section.title)}</b>"] if section.title else []
    if section.rows:
        head = line("th", (column.title for column in section.columns)) if has_head(section) else ""
        parts.append(f"<table>{head}{''.join(line('td', row) for row in section.rows)}</table>")
    if section.note:
        parts.append(f'<div style="opacity:.7">{html.escape(section.note)}</div>')
    return f'<div style="margin-bottom:.8em">{"".join(parts)}</div>'
