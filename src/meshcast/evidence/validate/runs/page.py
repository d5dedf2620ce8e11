"""What `validate runs` comes to: measures by source, hardware and stack, tables, and `docs/accuracy-runs.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from meshcast.base import format_bytes
from meshcast.evidence.validate.markdown import MEASURES, made_by
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.evidence.validate.runs.comparison import RunResult
from meshcast.evidence.validate.runs.left_out import MEANT, Halves, LeftOut, halves, left_out, share_inside
from meshcast.evidence.validate.summary import SCHEMA, FigureMeasures, compare, farthest
from meshcast.evidence.validate.tables import TextTable, extra_grid, markdown_table, print_grid, wide_console

_ABOUT = """\
Training runs that others measured and published, each written as a model of the zoo, a plan, a cluster and a software
stack by general rules (`docs/runs.md`), predicted and compared in seconds of a step. Rows that lack something are counted
as failed and say what they lack; what was taken for granted is listed for every row.

- A third of the sources, by a rule on their names, is set apart: nothing is tuned on them, and their error stands first.
- Every row did run: what is predicted not to fit is timed all the same, and listed as an error of memory.
- Parameters belong to devices, links and stacks, never to a row or a source. None was fitted to these rows, but
  mechanisms were found with them in view.
- Software that nobody looked at: with the stack most like its own in the place of each run's (`--next-stack`) the error
  over all rows is 12.3 % (November 2026; by source in `docs/runs.md`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSummary:
    """The whole of a validation."""

    results: tuple[RunResult, ...] = field(repr=False)
    not_run: int = 0

    @property
    def sources(self) -> FigureMeasures:
        """By source."""
        return compare((result.row for result in self.results), lambda row: row.time)

    def by(self, group: Callable[[RunResult], str]) -> FigureMeasures:
        """In groups of one's own."""
        rows = (replace(result.row, group=group(result)) for result in self.results)
        return compare(rows, lambda row: row.time)

    @property
    def breakdowns(self) -> dict[str, FigureMeasures]:
        """By whether they were set apart, by hardware, stack and grade."""
        return {
            "apart": self.by(lambda r: "set apart" if r.apart else "looked at"),
            "hardware": self.by(lambda r: r.target.hardware_class),
            "stack": self.by(lambda r: r.target.stack.name if r.target.stack else "unknown"),
            "grade": self.by(lambda r: r.measured.grade),
        }

    @property
    def over_memory(self) -> list[RunResult]:
        """Runs that are predicted not to fit, though they ran."""
        return [result for result in self.results if result.over_memory]

    @property
    def within_interval(self) -> float | None:
        """Share of predicted rows whose measured time lies in the interval; None without such rows."""
        rows = [result.row for result in self.results if result.row.time]
        return sum(row.within_interval for row in rows) / len(rows) if rows else None

    @property
    def left_out(self) -> list[LeftOut]:
        """Intervals of every source, as wide as the other sources would have them."""
        return left_out(result.row for result in self.results)

    @property
    def halves(self) -> Halves | None:
        """Intervals of every half of the sources, as wide as the other half would have them."""
        return halves(result.row for result in self.results)

    @property
    def failed(self) -> list[ProgramRow]:
        """Rows without a prediction."""
        return [result.row for result in self.results if result.row.time is None]

    @property
    def worst(self) -> list[RunResult]:
        """The rows farthest off."""
        by_id = {result.row.id: result for result in self.results}
        return [by_id[row.id] for row in farthest(result.row for result in self.results)]

    def to_json(self) -> dict[str, Any]:
        """The contract's last line; what is not in the contract stands after it."""
        return {
            "schema": SCHEMA,
            "kind": "runs",
            **self.sources.to_json(),
            "by": {
                name: {group: measures.to_json() for group, measures in found.groups.items()}
                for name, found in self.breakdowns.items()
            },
            "worst": [result.row.id for result in self.worst],
            "within_interval": self.within_interval,
            "within_interval_left_out": share_inside(self.left_out),
            "within_interval_halves": None if (judged := self.halves) is None else asdict(judged),
            "over_memory": [result.row.id for result in self.over_memory],
            "failures": {row.id: row.why for row in self.failed},
            "not_run": self.not_run,
        }


_TITLES = {
    "apart": "sources set apart and looked at",
    "hardware": "by hardware",
    "stack": "by stack",
    "grade": "by how much is known",
}


def runs_grids(summary: RunsSummary) -> list[TextTable]:
    """Everything the validation prints, in order."""
    found = [rows_grid(summary), extra_grid("by source", summary.sources)]
    found += [extra_grid(_TITLES[name], comparison) for name, comparison in summary.breakdowns.items()]
    found += [intervals_grid(summary), halves_grid(summary), memory_grid(summary)]
    if summary.worst:
        found.append(_named("worst rows", summary.worst))
    if summary.failed:
        found.append(failures_grid(summary))
    return [*found, assumptions_grid(summary)]


def rows_grid(summary: RunsSummary) -> TextTable:
    """Every row that was predicted."""
    return _named("runs", [result for result in summary.results if result.row.time])


def _named(title: str, results: list[RunResult]) -> TextTable:
    cells = tuple(
        (
            result.row.id,
            result.measured.run.model,
            f"{result.target.devices} {result.target.on.device.name if result.target.on else ''}",
            result.measured.published,
            f"{time.measured:.4g}",
            f"{time.predicted:.4g}",
            f"{time.error:+.1%}" + (" (over memory)" if result.over_memory else ""),
        )
        for result in results
        if (time := result.row.time)
    )
    header = ("run", "model", "on", "published", "measured s", "predicted s", "error")
    return TextTable(title=title, header=header, rows=cells)


def intervals_grid(summary: RunsSummary) -> TextTable:
    """Rows inside their intervals: as these are, and as wide as the other sources' rows ask for."""
    found = summary.left_out
    cells = [
        (each.source, str(each.rows), f"{each.times:.2f}", *_shares(each.inside, each.inside_own, each.rows))
        for each in found
    ]
    total = [sum(getattr(each, name) for each in found) for name in ("inside", "inside_own", "rows")]
    rows = (*cells, ("all", str(total[2]), "", *_shares(*total))) if found else ()
    header = ("source", "rows", "width by the others, times", "inside then", "inside")
    return TextTable(title="intervals, each source by the others", header=header, rows=tuple(rows))


def halves_grid(summary: RunsSummary) -> TextTable:
    """Rows inside intervals whose width another half of the sources chose, so that nine of ten of its own rows lie inside."""
    header = (
        "ways to take half of the sources",
        "meant to lie inside",
        "width, times",
        "inside, mean",
        "one way in ten below",
    )
    found = summary.halves
    shares = () if found is None else (found.inside, found.worst)
    cells = (
        ()
        if found is None
        else ((str(found.ways), f"{MEANT:.0%}", f"{found.times:.2f}", *map("{:.0%}".format, shares)),)
    )
    return TextTable(title="intervals, one half of the sources by the other", header=header, rows=cells)


def _shares(inside: int, inside_own: int, rows: int) -> tuple[str, str]:
    return f"{inside / rows:.0%}", f"{inside_own / rows:.0%}"


def memory_grid(summary: RunsSummary) -> TextTable:
    """Runs that are predicted not to fit, though they ran: errors of memory."""
    cells = tuple(
        (
            result.row.id,
            f"{result.target.devices} {result.target.on.device.name}",
            result.target.plan_text,
            format_bytes(result.memory or 0),
            format_bytes(result.target.on.device.memory_bytes),
        )
        for result in summary.over_memory
        if result.target.on is not None
    )
    return TextTable(title="predicted not to fit", header=("run", "on", "plan", "predicted", "there are"), rows=cells)


def failures_grid(summary: RunsSummary) -> TextTable:
    """Rows without a prediction, those that fail alike together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in summary.failed:
        alike.setdefault((row.group, row.why or ""), []).append(row.id)
    cells = tuple((_listed(ids), group, why) for (group, why), ids in alike.items())
    return TextTable(title="failed", header=("run", "group", "why"), rows=cells)


def assumptions_grid(summary: RunsSummary) -> TextTable:
    """What was taken for granted, and for which rows."""
    holders: dict[str, list[str]] = {}
    for result in summary.results:
        if not result.target.missing:
            for assumption in result.target.assumptions:
                holders.setdefault(assumption, []).append(result.row.id)
    cells = tuple((_listed(ids), assumption) for assumption, ids in holders.items())
    return TextTable(title="assumptions", header=("run", "why"), rows=cells)


def _listed(ids: list[str]) -> str:
    """Names of one prefix shortened: titan24-001, 002, 003."""
    found: list[str] = []
    prefix = ""
    for name in ids:
        head, dash, tail = name.rpartition("-")
        found.append(tail if dash and head == prefix else name)
        prefix = head
    return ", ".join(found)


def print_runs(summary: RunsSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in runs_grids(summary):
        if grid.rows:
            print_grid(console, grid)
    if summary.not_run:
        console.print(f"interrupted: {summary.not_run} rows were not run")


def runs_page(summary: RunsSummary, *, command: str, page: Path) -> str:
    """The page.

    Args:
        summary: The validation.
        command: The command that makes it, without the page.
        page: The file this is written to.
    """
    parts = ["# Accuracy of published runs\n", _ABOUT, made_by(command, page)]
    grids = [extra_grid(_TITLES["apart"].capitalize(), summary.breakdowns["apart"])]
    grids += [extra_grid("By source", summary.sources)]
    grids += [
        extra_grid(_TITLES[name].capitalize(), found) for name, found in summary.breakdowns.items() if name != "apart"
    ]
    if summary.left_out:
        grids.append(replace(intervals_grid(summary), title="Intervals, each source by the others"))
        grids.append(replace(halves_grid(summary), title="Intervals, one half of the sources by the other"))
    grids += [replace(rows_grid(summary), title="Runs")]
    if summary.over_memory:
        grids.append(replace(memory_grid(summary), title="Predicted not to fit"))
    if summary.failed:
        grids.append(replace(failures_grid(summary), title="Failed"))
    grids.append(replace(assumptions_grid(summary), title="Assumptions"))
    for grid in grids:
        parts += [f"## {grid.title}\n", markdown_table(grid)]
    urls = Counter(result.measured.source for result in summary.results if result.measured.source)
    listed = "".join(f"- {url}: {count} rows\n" for url, count in urls.items())
    return "\n".join([*parts, MEASURES, *(["## Where the rows come from\n", listed] if listed else [])])
