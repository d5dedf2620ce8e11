"""Our kernels against XLA's: `validate lowering`.

Launches are compared with those that the profiler saw, memsets and copies included; bytes, where the program's
optimized HLO is there, with what crosses its fusions' boundaries, in all and by class of kernel.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.capture import read_program
from meshcast.errors import MeshcastError
from meshcast.lower import KernelKind, LoweredProgram, lower
from meshcast.validate.groundtruth import MeasuredProgram
from meshcast.validate.optimized_hlo import CLASSES, CompiledKernel, read_optimized
from meshcast.validate.programs import Pair
from meshcast.validate.tables import Grid, print_grid, wide_console
from meshcast.workload import read_workload

WITHIN = 0.15  # of the measured count
_CLASS = {
    KernelKind.GEMM: "gemm",
    KernelKind.CONVOLUTION: "convolution",
    KernelKind.ATTENTION: "attention",
    KernelKind.REDUCTION: "reduction",
    KernelKind.SORT: "other",
    KernelKind.OTHER: "other",
    KernelKind.CUSTOM: "other",
    KernelKind.COLLECTIVE: "other",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringRow:
    """One program: launches, and bytes in all and by class, ours beside XLA's; or why there is nothing to compare."""

    id: str
    group: str
    kernels: Pair | None = None
    bytes: Pair | None = None
    classes: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)  # (our, XLA's) kernels, (...) bytes
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One line."""
        line: dict[str, Any] = {"id": self.id, "group": self.group}
        for name, pair in (("kernels", self.kernels), ("bytes", self.bytes)):
            line[name] = {"measured": pair.measured, "predicted": pair.predicted} if pair else None
        line["classes"] = {
            name: {"kernels": {"compiled": xla, "predicted": ours}, "bytes": {"compiled": there, "predicted": here}}
            for name, (ours, xla, here, there) in self.classes.items()
        }
        return line | ({"why": self.why} if self.why else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringSummary:
    """Errors over the programs that were compared."""

    rows: tuple[LoweringRow, ...]

    def geomean_error(self, what: str) -> float | None:
        """`exp(mean |ln(ours / XLA's)|) - 1` of "kernels" or "bytes"."""
        factors = [pair.factor for row in self.rows if (pair := getattr(row, what)) is not None]
        return math.expm1(sum(map(math.log, factors)) / len(factors)) if factors else None

    def share_within(self, what: str) -> float | None:
        """Share of the programs that lie within 15 %."""
        errors = [abs(pair.error) for row in self.rows if (pair := getattr(row, what)) is not None]
        return sum(error <= WITHIN for error in errors) / len(errors) if errors else None

    def to_json(self) -> dict[str, Any]:
        """The last line."""
        figures = {
            what: {"geomean_error": self.geomean_error(what), "within_15_percent": self.share_within(what)}
            for what in ("kernels", "bytes")
        }
        failed = sum(row.why is not None for row in self.rows)
        return {
            "schema": "meshcast.validation/1",
            "kind": "lowering",
            "rows": len(self.rows),
            "failed": failed,
        } | figures


def validate_lowering(folder: Path, programs: Sequence[MeasuredProgram]) -> Iterator[LoweringRow]:
    """A row for each program, in order."""
    launches = measured_launches(folder)
    for program in programs:
        yield compare(program, launches.get(program.id, 0.0), folder / "programs" / f"{program.id}.opt.hlo.gz")


def measured_launches(folder: Path) -> dict[str, float]:
    """Launches per run of each measured program, by its id; the folder has been read as a ground truth before."""
    packed, plain = folder / "measurements.jsonl.gz", folder / "measurements.jsonl"
    text = gzip.decompress(packed.read_bytes()).decode() if packed.is_file() else plain.read_text()
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {row["id"]: sum(float(kernel["count"]) for kernel in row.get("kernels") or ()) for row in rows}


def compare(program: MeasuredProgram, launches: float, optimized: Path) -> LoweringRow:
    """One program's row."""
    try:
        lowered = lower(read_workload(read_program(program.path)))
    except MeshcastError as error:
        return LoweringRow(id=program.id, group=program.group, why=f"{error.code}: {error.message}")
    compiled = read_optimized(optimized)
    moved = sum((k.read_bytes + k.written_bytes) * count for k, count in lowered.schedule.walk())
    there = sum(kernel.bytes * kernel.count for kernel in compiled)
    count = lowered.kernel_count
    return LoweringRow(
        id=program.id,
        group=program.group,
        kernels=Pair(predicted=count, measured=launches) if launches and count else None,
        bytes=Pair(predicted=moved, measured=there) if there and moved else None,
        classes=_by_class(lowered, compiled) if compiled else {},
    )


def _by_class(lowered: LoweredProgram, compiled: Sequence[CompiledKernel]) -> dict[str, tuple[int, int, int, int]]:
    found = {name: [0, 0, 0, 0] for name in CLASSES}
    for kernel, count in lowered.schedule.walk():
        cells = found[_CLASS.get(kernel.kind, "loop")]
        cells[0] += count
        cells[2] += count * (kernel.read_bytes + kernel.written_bytes)
    for other in compiled:
        cells = found[other.kind]
        cells[1] += other.count
        cells[3] += other.count * other.bytes
    return {name: (a, b, c, d) for name, (a, b, c, d) in found.items() if a or b}


def lowering_grids(summary: LoweringSummary) -> list[Grid]:
    """The table per program, and those by class of kernel where there is HLO to compare with."""
    grids = [_program_grid(summary)]
    detailed = [row for row in summary.rows if row.classes]
    if detailed:
        header = ("program", *CLASSES)
        counts = tuple((row.id, *(_counts(row.classes.get(name)) for name in CLASSES)) for row in detailed)
        sizes = tuple((row.id, *(_bytes(row.classes.get(name)) for name in CLASSES)) for row in detailed)
        grids.append(Grid(title="kernels by class, ours / in XLA's HLO", header=header, rows=counts))
        grids.append(Grid(title="GB by class, ours / in XLA's HLO", header=header, rows=sizes))
    return grids


def _program_grid(summary: LoweringSummary) -> Grid:
    header = ("program", "group", "kernels", "measured", "ratio", "GB", "in XLA's HLO", "ratio", "why")
    rows = [
        (row.id, row.group, *_cells(row.kernels, 1, ".0f"), *_cells(row.bytes, 1e9, ".3f"), row.why or "")
        for row in summary.rows
    ]
    for title, figure in (("geomean error", summary.geomean_error), ("within 15 %", summary.share_within)):
        kernels, moved = (_percent(figure(what)) for what in ("kernels", "bytes"))
        rows.append((title, "", "", "", kernels, "", "", moved, ""))
    return Grid(title="lowering", header=header, rows=tuple(rows))


def _cells(pair: Pair | None, unit: float, spec: str) -> tuple[str, str, str]:
    if pair is None:
        return "-", "-", "-"
    return f"{pair.predicted / unit:{spec}}", f"{pair.measured / unit:{spec}}", f"{pair.predicted / pair.measured:.2f}"


def _counts(cells: tuple[int, int, int, int] | None) -> str:
    return f"{cells[0]} / {cells[1]}" if cells else "-"


def _bytes(cells: tuple[int, int, int, int] | None) -> str:
    return f"{cells[2] / 1e9:.2f} / {cells[3] / 1e9:.2f}" if cells else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def print_lowering(summary: LoweringSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in lowering_grids(summary):
        print_grid(console, grid)
