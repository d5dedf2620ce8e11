"""Many folders of measured programs judged side by side: `validate sets`.

A file names the sets, the folder of each, and what of it had been seen while the models were made:

    schema = "meshcast.sets/1"
    about = "What these sets are, for the page."

    [[sets]]
    name = "models measured last"
    folder = "h200-more-models/apart"  # beside the file
    seen = "totals"

so that figures of what nobody looked at stand in one table, made by one command, apart from those of what was opened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from meshcast.base import InputError
from meshcast.estimate import MeasuredProgram, read_measured_programs
from meshcast.evidence.validate.markdown import made_by, relative
from meshcast.evidence.validate.programs import validate_programs
from meshcast.evidence.validate.summary import SCHEMA, Summary, summarise
from meshcast.evidence.validate.tables import TextTable, markdown_table, percent, print_grid, wide_console
from meshcast.hardware import Reader, read_document
from meshcast.options import Options

FILE_SCHEMA = "meshcast.sets/1"
# What was seen of a set while the models were made, from nothing to all of it.
SEEN = ("nothing", "totals", "worst names", "some rows", "all rows")
_NEVER_OPENED = frozenset({"nothing", "totals", "worst names"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """A folder of measured programs under a name.

    Attributes:
        name: What a table calls it.
        folder: Where its measurements lie.
        seen: What of it had been seen while the models were made, one of `SEEN`.
        programs: What was measured.
    """

    name: str
    folder: Path
    seen: str
    programs: tuple[MeasuredProgram, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFigures:
    """How far one fidelity is off on one set."""

    measured: MeasuredSet
    fidelity: str
    summary: Summary

    @property
    def median_error(self) -> float | None:
        """`exp(median |ln(p / m)|) - 1`: half of the programs are off by no more; None without a prediction."""
        logs = [math.log(row.time.factor) for row in self.summary.rows if row.time]
        return math.expm1(median(logs)) if logs else None

    def to_json(self) -> dict[str, Any]:
        """One line: the set, the fidelity, and the measures of its times and memory."""
        return {
            "set": self.measured.name,
            "seen": self.measured.seen,
            "fidelity": self.fidelity,
            **self.summary.time.all.to_json(),
            "median_error": self.median_error,
            "within_interval": self.summary.within_interval(),
            "memory": self.summary.memory.all.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SetsSummary:
    """All sets in all fidelities that were asked for.

    Attributes:
        figures: By set, and within a set by fidelity, as they were asked for.
        fidelities: In the order of columns.
        not_run: How many pairs of set and fidelity Ctrl-C left out.
    """

    figures: tuple[SetFigures, ...]
    fidelities: tuple[str, ...]
    not_run: int = 0

    def to_json(self) -> dict[str, Any]:
        """The summary object that `--json` prints last: all programs of sets that were never opened, by fidelity."""
        groups = {fidelity: self._never_opened(fidelity) for fidelity in self.fidelities}
        return {"schema": SCHEMA, "kind": "sets", "not_run": self.not_run, "never_opened": groups}

    def _never_opened(self, fidelity: str) -> dict[str, Any]:
        rows = [row for figures in self._of(fidelity) for row in figures.summary.rows]
        summary = summarise(rows)
        return {**summary.time.all.to_json(), "within_interval": summary.within_interval()}

    def _of(self, fidelity: str) -> list[SetFigures]:
        return [each for each in self.figures if each.fidelity == fidelity and each.measured.seen in _NEVER_OPENED]

    def tables(self) -> list[TextTable]:
        """Sets that were never opened first, and then those of which rows were looked at."""
        never = tuple(each for each in self.figures if each.measured.seen in _NEVER_OPENED)
        opened = tuple(each for each in self.figures if each.measured.seen not in _NEVER_OPENED)
        return [
            self._table(title, figures)
            for title, figures in (("Never opened", never), ("Opened, nothing fitted to them", opened))
            if figures
        ]

    def _table(self, title: str, figures: Sequence[SetFigures]) -> TextTable:
        sets: dict[str, dict[str, SetFigures]] = {}
        for each in figures:
            sets.setdefault(each.measured.name, {})[each.fidelity] = each
        columns = ((each, f"{each}: inside", f"{each}: memory") for each in self.fidelities)
        header = ("set", "rows", *(column for each in columns for column in each))
        rows = [_cells(name, found, self.fidelities) for name, found in sets.items()]
        return TextTable(title=title, header=header, rows=tuple(rows))


def read_sets(path: Path, *, limit: int | None = None) -> tuple[list[MeasuredSet], str]:
    """The sets that a file names, each with its programs, and what it says of them all.

    Args:
        path: The file; folders are beside it.
        limit: Only so many programs of each.

    Raises:
        InputError: The file does not follow the schema, or a folder cannot be read.
    """
    reader = Reader(read_document(path))
    reader.choice("schema", among=(FILE_SCHEMA,))
    about = reader.text("about", default="")
    stated = [
        (
            reader.text("sets", place, "name"),
            reader.text("sets", place, "folder"),
            reader.choice("sets", place, "seen", among=SEEN),
        )
        for place in range(reader.length("sets"))
    ]
    reader.finish(
        fix='write [[sets]] with name = "...", folder = "..." and seen = "nothing" (docs/accuracy-left-out.md)'
    )
    if not stated:
        raise InputError("names no sets", where=str(path), fix='write [[sets]] with name = "...", folder = "..."')
    names = [name for name, _, _ in stated]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"has two sets named {twice!r}", where=str(path), fix="give each a name of its own")
    sets = [
        MeasuredSet(
            name=name,
            folder=path.parent / folder,
            seen=seen,
            programs=tuple(read_measured_programs(path.parent / folder, limit=limit)),
        )
        for name, folder, seen in stated
    ]
    return sets, about


def validate_sets(
    sets: Sequence[MeasuredSet], fidelities: Sequence[str], options: Options, *, jobs: int = 1
) -> Iterator[SetFigures]:
    """Every set in every fidelity, as soon as it is known; kernels are modelled but for `compiled`, which has the compiler's.

    Args:
        sets: What to predict.
        fidelities: At which.
        options: The device.
        jobs: Processes to predict in.
    """
    for each in sets:
        for fidelity in fidelities:
            asked = options.having(fidelity=fidelity, lowering="auto" if fidelity == "compiled" else "modelled")
            rows = list(validate_programs(each.programs, asked, jobs=jobs))
            yield SetFigures(measured=each, fidelity=fidelity, summary=summarise(rows))


def print_sets(summary: SetsSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for table in summary.tables():
        print_grid(console, table)
    if summary.not_run:
        console.print(f"interrupted: {summary.not_run} sets and fidelities were not run")


_COLUMNS = """\
An error is the geometric mean of the factor by which predictions are off, less one; in brackets its median over the
programs. *Inside* is the share of measured times that lie in the predicted interval. Kernels are modelled, but for
`compiled`, which has the compiler's own.
"""


def sets_page(summary: SetsSummary, *, about: str, command: str, page: Path) -> str:
    """The page of `--markdown`: what the file says of its sets, the tables, and where the sets lie."""
    tables = [f"## {table.title}\n\n{markdown_table(table)}" for table in summary.tables()]
    folders = {each.measured.name: relative(each.measured.folder) for each in summary.figures}
    where = "\n".join(f"- {name}: `{folder}`" for name, folder in folders.items())
    head = ["# Accuracy over sets of measured programs\n", *([about.strip() + "\n"] if about else []), _COLUMNS]
    return "\n".join([*head, made_by(command, page), *tables, f"## Where they lie\n\n{where}\n"])


def _cells(name: str, found: dict[str, SetFigures], fidelities: Sequence[str]) -> tuple[str, ...]:
    first = next(iter(found.values()))
    cells = [name, str(first.summary.time.all.rows)]
    for fidelity in fidelities:
        cells += _of_fidelity(found[fidelity]) if fidelity in found else ["-", "-", "-"]
    return tuple(cells)


def _of_fidelity(figures: SetFigures) -> list[str]:
    time = figures.summary.time.all
    answered = f", {time.rows - time.failed} answered" if time.failed else ""
    error = f"{percent(time.geomean_error)} ({percent(figures.median_error)}){answered}"
    return [error, percent(figures.summary.within_interval()), percent(figures.summary.memory.all.geomean_error)]
