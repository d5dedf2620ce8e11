"""A validation as tables for people: on the terminal, and as the Markdown of `docs/accuracy.md`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshcast.base import markdown_of
from meshcast.evidence.validate.measures import Measures
from meshcast.evidence.validate.programs import UNIT, ProgramRow
from meshcast.evidence.validate.summary import FITTED, HELD_OUT, FigureMeasures, Summary

if TYPE_CHECKING:
    from rich.console import Console

_HEADER = ("group", "rows", "failed", "geomean error", "MAPE", "bias", "Spearman", "measured / predicted")
_HALF = ("rows", "geomean error", "MAPE", "bias")
PEER_TITLES = {"hespas": "hespas", "naive_a": "naive a", "naive_b": "naive b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table before it is drawn: all cells are texts, the first column is a name."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def time_grid(summary: Summary) -> TextTable:
    """Errors of the predicted times per group and in all."""
    rows = [
        (name, *_cells(group), percent(summary.within_interval(name))) for name, group in summary.time.groups.items()
    ]
    total = ("all", *_cells(summary.time.all), percent(summary.within_interval()))
    return TextTable(title="time", header=(*_HEADER, "in interval"), rows=(*rows, total))


def halves_grid(summary: Summary) -> TextTable:
    """Errors of the predicted times on the half that fits may be made on, and on the other one."""
    header = ("group", *(f"{half}: {what}" for half in ("fitted", "held out") for what in _HALF))
    halves = [summary.halves[name] for name in (FITTED, HELD_OUT)]
    rows = [(name, *(cell for half in halves for cell in _half(half.groups.get(name)))) for name in summary.time.groups]
    total = ("all", *(cell for half in halves for cell in _half(half.all)))
    return TextTable(title="time by half", header=header, rows=(*rows, total))


def peer_grid(summary: Summary) -> TextTable:
    """Our geomean error beside the peers' on the same rows."""
    columns = [summary.time, *summary.peers.values()]
    header = ("group", "meshcast", *(PEER_TITLES.get(name, name) for name in summary.peers))
    rows = [(name, *(_error_cell(column.groups.get(name)) for column in columns)) for name in summary.time.groups]
    total = ("all", *(_error_cell(column.all) for column in columns))
    return TextTable(title="geomean error beside peers", header=header, rows=(*rows, total))


def extra_grid(title: str, comparison: FigureMeasures) -> TextTable:
    """Errors of another figure, per group and in all."""
    rows = [(name, *_cells(group)) for name, group in comparison.groups.items()]
    return TextTable(title=title, header=_HEADER, rows=(*rows, ("all", *_cells(comparison.all))))


def worst_grid(title: str, rows: Sequence[ProgramRow]) -> TextTable:
    """Single rows with both times."""
    cells = [
        (row.id, row.group, *(f"{us:.5g} {UNIT}" for us in (m, p)), f"{m / p:.2f}")
        for row in rows
        if (m := row.measured) and (p := row.predicted)
    ]
    header = ("program", "group", "measured", "predicted", "measured / predicted")
    return TextTable(title=title, header=header, rows=tuple(cells))


def failed_grid(rows: Sequence[ProgramRow]) -> TextTable:
    """Rows without a prediction, and why."""
    cells = tuple((row.id, row.group, row.why or "") for row in rows)
    return TextTable(title="failed", header=("program", "group", "why"), rows=cells)


def grids(summary: Summary) -> list[TextTable]:
    """Everything a validation prints, in order."""
    found = [time_grid(summary)]
    if summary.halves:
        found.append(halves_grid(summary))
    if summary.peers:
        found.append(peer_grid(summary))
    found.append(worst_grid("worst rows", summary.worst))
    if below := summary.below_speed_of_light:
        found.append(worst_grid(f"{len(below)} rows faster than the interval's lower end", below))
    if summary.memory.all.rows:
        found.append(extra_grid("peak memory", summary.memory))
    if summary.energy.all.rows:
        found.append(extra_grid("energy", summary.energy))
    if summary.sustained.all.rows:
        found.append(extra_grid("time of sustained runs", summary.sustained))
    if summary.failed:
        found.append(failed_grid(summary.failed))
    return found


def wide_console() -> Console:
    """A console for tables; a pipe or file has no width, and its cells must not be cut off at 80 characters."""
    from rich.console import Console

    console = Console(highlight=False)
    # A file or a pipe has room for whole rows, unless somebody says how wide it is.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=200)


def print_grid(console: Console, grid: TextTable) -> None:
    """One table: text to the left, numbers to the right, the row of all groups in bold."""
    from rich.table import Table

    table = Table(title=grid.title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    for position, name in enumerate(grid.header):
        table.add_column(name, justify="left" if _is_text(grid, position) else "right")
    for row in grid.rows:
        table.add_row(*row, style="bold" if row[0] == "all" else None)
    console.print(table)
    console.print()


def print_summary(summary: Summary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in grids(summary):
        print_grid(console, grid)
    if summary.not_run:
        console.print(f"interrupted: {summary.not_run} rows were not run")


def markdown_table(grid: TextTable) -> str:
    """A grid as a Markdown table."""
    numbers = [place for place in range(len(grid.header)) if not _is_text(grid, place)]
    return markdown_of(grid.header, grid.rows, right=numbers) + "\n"


def _is_text(grid: TextTable, place: int) -> bool:
    return place == 0 or grid.header[place] in ("group", "why")


def _cells(measures: Measures) -> tuple[str, ...]:
    return (
        str(measures.rows),
        str(measures.failed),
        percent(measures.geomean_error),
        percent(measures.mape),
        percent(measures.bias, sign="+"),
        _number(measures.spearman),
        _number(measures.median_ratio),
    )


def _half(measures: Measures | None) -> tuple[str, ...]:
    if measures is None:
        return ("0", *("-" for _ in _HALF[1:]))
    return (
        str(measures.rows) + (f" ({measures.failed} failed)" if measures.failed else ""),
        percent(measures.geomean_error),
        percent(measures.mape),
        percent(measures.bias, sign="+"),
    )


def _error_cell(measures: Measures | None) -> str:
    """A geomean error, with the rows that have no answer."""
    if measures is None:
        return "-"
    return percent(measures.geomean_error) + (f" ({measures.failed} failed)" if measures.failed else "")


def percent(value: float | None, sign: str = "") -> str:
    """A share as a cell of a table, a dash where there is none."""
    return "-" if value is None else f"{value:{sign}.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
