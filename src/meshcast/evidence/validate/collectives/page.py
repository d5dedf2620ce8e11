"""What `validate collectives` comes to: measures by hardware and size, tables, and `docs/accuracy-collectives.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshcast.evidence.validate.collectives.comparison import MISTUNED, CollectiveResult
from meshcast.evidence.validate.markdown import MEASURES, made_by
from meshcast.evidence.validate.programs import ProgramRow
from meshcast.evidence.validate.summary import SCHEMA, FigureMeasures, compare, farthest
from meshcast.evidence.validate.tables import (
    TextTable,
    extra_grid,
    failed_grid,
    markdown_table,
    print_grid,
    wide_console,
    worst_grid,
)

_ABOUT = """\
Collectives that others measured and published, each predicted alone on the system that its source names, with the
algorithm and protocol that the library would choose (`docs/collectives.md`). Rows that give a time are held against it,
rows that give only a bus bandwidth against the time that it means; a size of "large" is taken as 16 GiB.

- Parameters belong to link technologies (`meshcast.hardware`, catalogue/links), never to a row, a size or a source. They
  were calibrated on rows like these; `docs/collectives.md` says how far they carry over to technologies left out.
- The class is that of the device, or of the link where a source names no device.
- Words are read by a grammar: device or host, devices and nodes, links inside, network, cards and rates, slices. What it
  does not understand, and what contradicts itself, fails with the reason; what no word says (how many cards a host has) is
  that of the catalogue's usual system, and `--json` lists it as `assumed`.
- Rows of which the source itself says that the system was mis-tuned are predicted too, in a group of their own; a table
  below has their classes with them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivesSummary:
    """The whole of a validation."""

    results: tuple[CollectiveResult, ...] = field(repr=False)
    not_run: int = 0
    leave_out: str | None = None  # the class that parameters know nothing of, or `each`: of every row its own

    @property
    def judged(self) -> list[CollectiveResult]:
        """Results of rows that are collectives."""
        return [result for result in self.results if not result.skipped]

    @property
    def skipped(self) -> list[str]:
        """Rows that are no collectives."""
        return [result.row.id for result in self.results if result.skipped]

    @property
    def time(self) -> FigureMeasures:
        """By class of hardware and size."""
        return compare((result.row for result in self.judged), lambda row: row.time)

    def by(self, group: Callable[[CollectiveResult], str]) -> FigureMeasures:
        """Well-tuned rows in groups of one's own."""
        rows = (replace(r.row, group=group(r)) for r in self.judged if r.row.group != MISTUNED)
        return compare(rows, lambda row: row.time)

    @property
    def breakdowns(self) -> dict[str, FigureMeasures]:
        """By size, collective, and the algorithm that was chosen."""
        return {
            "size": self.by(lambda r: r.size_class),
            "collective": self.by(lambda r: r.measured.kind or ""),
            "algorithm": self.by(lambda r: f"{r.plan.algorithm} {r.plan.protocol}".strip() if r.plan else "none"),
        }

    @property
    def with_mistuned(self) -> FigureMeasures | None:
        """The classes of rows that are called mis-tuned, with these; None where there are none."""
        groups = {result.group for result in self.judged if result.measured.mistuned}
        rows = [replace(result.row, group=result.group) for result in self.judged if result.group in groups]
        return compare(rows, lambda row: row.time) if groups else None

    @property
    def failed(self) -> list[ProgramRow]:
        """Rows without a prediction."""
        return [result.row for result in self.judged if result.row.time is None]

    @property
    def worst(self) -> list[ProgramRow]:
        """The rows farthest off."""
        return farthest(result.row for result in self.judged)

    def to_json(self) -> dict[str, Any]:
        """The contract's last line; what is not in the contract stands after it."""
        with_them = self.with_mistuned
        return {
            "schema": SCHEMA,
            "kind": "collectives",
            "leave_out": self.leave_out,
            **self.time.to_json(),
            "by": {
                name: {group: measures.to_json() for group, measures in found.groups.items()}
                for name, found in self.breakdowns.items()
            },
            "with_mistuned": {group: measures.to_json() for group, measures in with_them.groups.items()}
            if with_them
            else {},
            "worst": [row.id for row in self.worst],
            "failures": {row.id: row.why for row in self.failed},
            "skipped": self.skipped,
            "not_run": self.not_run,
        }


_TITLES = {"size": "Sizes", "collective": "Collectives", "algorithm": "Algorithms and protocols that were chosen"}


_LEFT_OUT = "Each class predicted without what it taught"
_LEFT_OUT_ABOUT = """\
A number that was calibrated on measurements of a class is replaced by the median of its siblings', which were not
(`docs/collectives.md`, Leaving one out): what is to be expected of hardware that nobody measured. `meshcast validate
collectives FILE.csv --leave-out each` prints it.
"""
_WITH_MISTUNED = "With the rows that are called mis-tuned"


def collectives_grids(summary: CollectivesSummary) -> list[TextTable]:
    """Everything the validation prints, in order."""
    known = f" ({_LEFT_OUT.lower()})" if summary.leave_out else ""
    found = [extra_grid(f"time by hardware and size{known}", summary.time)]
    if summary.with_mistuned:
        found.append(extra_grid(_WITH_MISTUNED, summary.with_mistuned))
    found += [extra_grid(_TITLES[name], comparison) for name, comparison in summary.breakdowns.items()]
    found.append(worst_grid("worst rows", summary.worst))
    if summary.failed:
        found.append(failed_grid(summary.failed))
    return found


def print_collectives(summary: CollectivesSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in collectives_grids(summary):
        print_grid(console, grid)
    if summary.skipped:
        console.print(_skipped(summary))
    if summary.not_run:
        console.print(f"interrupted: {summary.not_run} rows were not run")


def _skipped(summary: CollectivesSummary) -> str:
    return f"Skipped, as no collectives: {', '.join(summary.skipped)}."


def collectives_page(summary: CollectivesSummary, left_out: CollectivesSummary, *, command: str, page: Path) -> str:
    """The page.

    Args:
        summary: The validation.
        left_out: The same with each row's own class left out.
        command: The command that makes it, without the page.
        page: The file this is written to.
    """
    parts = ["# Accuracy of collectives\n", _ABOUT, made_by(command, page)]
    parts += [f"## {_LEFT_OUT}\n", _LEFT_OUT_ABOUT, markdown_table(extra_grid("", left_out.time))]
    parts += [markdown_table(extra_grid("", left_out.breakdowns["size"]))]
    parts += ["## Hardware and size\n", markdown_table(extra_grid("", summary.time))]
    if summary.with_mistuned:
        parts += [f"## {_WITH_MISTUNED}\n", markdown_table(extra_grid("", summary.with_mistuned))]
    for name, comparison in summary.breakdowns.items():
        parts += [f"## {_TITLES[name]}\n", markdown_table(extra_grid("", comparison))]
    parts += ["## Worst rows\n", markdown_table(worst_grid("", summary.worst))]
    if summary.failed:
        parts += ["## Failed\n", markdown_table(failed_grid(summary.failed))]
    if summary.skipped:
        parts.append(f"{_skipped(summary)}\n")
    sources = Counter(result.measured.source for result in summary.judged if result.measured.source)
    listed = "".join(f"- {source}: {count} rows\n" for source, count in sources.items())
    return "\n".join([*parts, MEASURES, *(["## Sources\n", listed] if listed else [])])
