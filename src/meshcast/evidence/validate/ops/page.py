"""What `validate ops` comes to: measures by chip, op and grade, tables, and the page `docs/accuracy-tpu.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshcast.evidence.validate.markdown import MEASURES, made_by
from meshcast.evidence.validate.ops.comparison import SCALESIM, OpResult
from meshcast.evidence.validate.ops.rows import ASSUMED_TYPE, UNSTATED
from meshcast.evidence.validate.programs import Pair, ProgramRow
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
Single ops that others measured on TPUs and published, each made the StableHLO program that was measured and predicted on
its chip. Sources, by row: cocossim's probes on v6e, SCALE-Sim-validation on a chip that it does not name (memory spaces,
copy rates and clock ticks say TPU v4), Google's tpu-recipes and others. Grades are how far a figure can be trusted: A is
device time, B noisy or derived, C host wall time or suspect.

- A step of a chained loop is predicted as the loop, divided by its trips, or by what further trips add where that was
  measured: what the compiler keeps on chip from one step to the next stays there in both.
- Figures by host wall time hold 100 us and more of dispatch, or a chain's share of it, that no prediction here holds:
  small rows of grade C are mostly that.
- Products of a serving framework's decode whose weights were loaded ahead (`weights prefetched`) are predicted with the
  load: they ran faster than memory delivers.
- Pallas kernels are JAX's own, lowered for a TPU, with the work that they do declared beside them; of what is slow
  about one, fetching a paged cache page by page is in it, small tiles are not.
- SCALE-Sim-validation's rows are float16, which a TPU's vector unit converts.
- Collectives are predicted by the network model, whose parameters for links are calibrated on some of these rows
  (`docs/collectives.md`).
"""
_PEER = """\
[SCALE-Sim TPU](https://arxiv.org/abs/2603.22535) is a published model of TPU v4: straight lines that its authors fitted to
most of these very rows (`meshcast.estimate.scalesim_tpu`). Four parameters of our kernels were set on some of them (what
turning f16 into f32 and back costs, and a copy's latency; `docs/tpu.md` says which rows were set apart), and those of its
links on the collectives.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsSummary:
    """The whole of a validation."""

    results: tuple[OpResult, ...] = field(repr=False)
    not_run: int = 0

    def by(self, group: Callable[[OpResult], str]) -> FigureMeasures:
        """Times in groups of one's own."""
        return compare((replace(r.row, group=group(r)) for r in self.results), lambda row: row.time)

    @property
    def time(self) -> FigureMeasures:
        """By chip, op and grade."""
        return compare((result.row for result in self.results), lambda row: row.time)

    @property
    def breakdowns(self) -> dict[str, FigureMeasures]:
        """By chip, op, grade, family of ops with chip and grade, and by how it was measured."""
        return {
            "family": self.by(lambda r: f"{r.op.chip}/{r.family}/{r.op.grade}"),
            "chip": self.by(lambda r: r.op.chip),
            "op": self.by(lambda r: r.op.op),
            "grade": self.by(lambda r: r.op.grade),
            "method": self.by(lambda r: f"{r.op.chip}, {r.op.method}"),
        }

    @property
    def peers(self) -> dict[str, tuple[FigureMeasures, FigureMeasures]]:
        """Ours and a peer's errors on the rows that the peer answers for and we are not excused from."""
        found = {}
        for name in dict.fromkeys(name for result in self.results for name in result.peers):
            asked = [result for result in self.results if name in result.peers and result.row.measured is not None]
            theirs = {result.row.id: result.peers[name] for result in asked}
            rows = [result.row for result in asked]
            found[name] = (compare(rows, lambda row: row.time), compare(rows, _peer_pair(theirs)))
        return found

    @property
    def failed(self) -> list[ProgramRow]:
        """Rows without a prediction."""
        return [result.row for result in self.results if result.row.time is None]

    @property
    def worst(self) -> list[ProgramRow]:
        """The rows farthest off."""
        return farthest(result.row for result in self.results)

    def worst_of(self, chip: str) -> list[ProgramRow]:
        """The rows of a chip farthest off."""
        return farthest(result.row for result in self.results if result.op.chip == chip)

    @property
    def unstated(self) -> dict[str, int]:
        """How many rows state no element type, and how many not how they were measured."""
        ops = [result.op for result in self.results]
        return {
            "dtype": sum(op.stated_dtype == UNSTATED for op in ops),
            "method": sum(op.method == UNSTATED for op in ops),
        }

    @property
    def chips(self) -> list[str]:
        """Chips, in the order in which they appear."""
        return list(dict.fromkeys(result.op.chip for result in self.results))

    def to_json(self) -> dict[str, Any]:
        """The contract's last line; what is not in the contract stands after it."""
        return {
            "schema": SCHEMA,
            "kind": "ops",
            **self.time.to_json(),
            "by": {
                name: {group: measures.to_json() for group, measures in found.groups.items()}
                for name, found in self.breakdowns.items()
            },
            "worst": [row.id for row in self.worst],
            "failures": {row.id: row.why for row in self.failed},
            "peers": {
                name: {"meshcast": ours.to_json(), name: theirs.to_json()}
                for name, (ours, theirs) in self.peers.items()
            },
            "not_run": self.not_run,
            "unstated": self.unstated,
        }


def _peer_pair(figures: dict[str, float]) -> Callable[[ProgramRow], Pair | None]:
    def pair(row: ProgramRow) -> Pair | None:
        assert row.measured is not None
        return Pair(predicted=figures[row.id], measured=row.measured)

    return pair


def peer_rows_grid(name: str, ours: FigureMeasures, theirs: FigureMeasures) -> TextTable:
    """Our geomean error and bias beside a peer's on the same rows."""

    def cells(comparison: FigureMeasures, group: str | None) -> tuple[str, str]:
        measures = comparison.all if group is None else comparison.groups[group]
        error, bias = measures.geomean_error, measures.bias
        return ("-" if error is None else f"{error:.1%}", "-" if bias is None else f"{bias:+.1%}")

    header = ("group", "rows", "meshcast", "meshcast: bias", name, f"{name}: bias")
    groups: Iterable[str | None] = (*theirs.groups, None)
    rows = []
    for group in groups:
        counted = theirs.all if group is None else theirs.groups[group]
        rows.append((group or "all", str(counted.rows), *cells(ours, group), *cells(theirs, group)))
    return TextTable(title=f"geomean error beside {name}", header=header, rows=tuple(rows))


def failures_grid(rows: list[ProgramRow]) -> TextTable:
    """Rows without a prediction by their reason: how many, and which come first."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reason = (row.why or "").replace(f"{row.id}: ", "")
        reasons.setdefault((row.group, reason), []).append(row.id)
    cells = tuple(
        (group, str(len(ids)), ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else ""), why)
        for (group, why), ids in reasons.items()
    )
    return TextTable(title="failed", header=("group", "rows", "ids", "why"), rows=cells)


_TITLES = {
    "family": "Kinds of ops", "chip": "Chips", "op": "Ops", "grade": "Grades", "method": "How it was measured",
}  # fmt: skip


def ops_grids(summary: OpsSummary) -> list[TextTable]:
    """Everything the validation prints, in order."""
    found = [extra_grid("time by chip, op and grade", summary.time)]
    found += [extra_grid(_TITLES[name], comparison) for name, comparison in summary.breakdowns.items()]
    found += [peer_rows_grid(name, *both) for name, both in summary.peers.items()]
    found.append(worst_grid("worst rows", summary.worst))
    if summary.failed:
        found.append(failed_grid(summary.failed) if len(summary.failed) <= 5 else failures_grid(summary.failed))
    return found


def print_ops(summary: OpsSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in ops_grids(summary):
        print_grid(console, grid)
    if any(summary.unstated.values()):
        console.print(_unstated(summary))
    if summary.not_run:
        console.print(f"interrupted: {summary.not_run} rows were not run")


def _unstated(summary: OpsSummary) -> str:
    """The rows of which something is assumed or unknown, in a sentence."""
    rows, counts = len(summary.results), summary.unstated
    return (
        f"Of {rows} rows, {counts['dtype']} state no element type (predicted as {ASSUMED_TYPE}) and {counts['method']} do "
        f"not say how they were measured: both are `{UNSTATED}` here."
    )


def ops_page(summary: OpsSummary, *, command: str, page: Path) -> str:
    """The page.

    Args:
        summary: The validation.
        command: The command that makes it, without the page.
        page: The file this is written to.
    """
    parts = [
        "# Accuracy on TPUs, op by op\n",
        f"{_ABOUT}- {_unstated(summary)}\n",
        made_by(command, page),
    ]
    for name, comparison in summary.breakdowns.items():
        parts += [f"## {_TITLES[name]}\n", markdown_table(extra_grid("", comparison))]
    parts += ["## Chips, ops and grades\n", markdown_table(extra_grid("", summary.time))]
    for name, both in summary.peers.items():
        parts += [f"## Beside {name}\n", _PEER if name == SCALESIM else "", markdown_table(peer_rows_grid(name, *both))]
    for chip in summary.chips:
        if worst := summary.worst_of(chip):
            parts += [f"## Worst rows, {chip}\n", markdown_table(worst_grid("", worst))]
    if summary.failed:
        parts += ["## Failed\n", markdown_table(failures_grid(summary.failed))]
    sources = Counter(result.op.source for result in summary.results if result.op.source)
    listed = "".join(f"- {source}: {count} rows\n" for source, count in sources.items())
    return "\n".join([*parts, MEASURES, *(["## Sources\n", listed] if listed else [])])
