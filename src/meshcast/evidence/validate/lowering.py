"""Our kernels against XLA's: `validate lowering`.

Three ways to a program's kernels stand side by side: `modelled` by our rules, `compiled` by the real compiler where it
is installed, and `given`, read from the program's optimized HLO as the card ran it: a check of the reader itself, and
of what no HLO shows (kernels inside library calls). Launches are compared with those that the profiler saw, memsets
and copies included; bytes with what crosses the boundaries of the given kernels, in all and by class of kernel; library
calls with those of the optimized HLO.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.base import MeshcastError
from meshcast.estimate import MeasuredProgram
from meshcast.evidence.validate.library_calls import LIBRARIES, Calls, library_calls
from meshcast.evidence.validate.programs import Pair
from meshcast.evidence.validate.tables import TextTable, print_grid, wide_console
from meshcast.hardware import Device
from meshcast.lower import (
    KernelKind,
    LoweredProgram,
    lower,
    lower_compiled,
    lower_hlo,
    why_not_compiled,
)
from meshcast.programs import read_program
from meshcast.simulate import hidden_launches, peak_memory
from meshcast.workload import read_workload

WITHIN = 0.15  # of the measured count
WAYS = ("modelled", "compiled", "given")
CLASSES = ("gemm", "convolution", "attention", "reduction", "loop", "other")
_CLASS = {
    KernelKind.GEMM: "gemm",
    KernelKind.CONVOLUTION: "convolution",
    KernelKind.ATTENTION: "attention",
    KernelKind.REDUCTION: "reduction",
    KernelKind.SORT: "other",
    KernelKind.SOLVER: "other",
    KernelKind.OTHER: "other",
    KernelKind.CUSTOM: "other",
    KernelKind.COLLECTIVE: "other",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringWay:
    """One way's launches and bytes against the truth, or why there are none."""

    kernels: Pair | None = None
    bytes: Pair | None = None
    memory: Pair | None = None
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The part of a row's JSON line that this fills."""
        pairs = {"kernels": self.kernels, "bytes": self.bytes, "memory": self.memory}
        line = {n: {"measured": p.measured, "predicted": p.predicted} if p else None for n, p in pairs.items()}
        return line | ({"why": self.why} if self.why else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringRow:
    """One program, its kernels three ways; classes are (modelled, given) kernels and (modelled, given) bytes."""

    id: str
    group: str
    ways: dict[str, LoweringWay]
    library: str = ""
    classes: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)  # library -> (modelled, given)

    @property
    def modelled(self) -> LoweringWay:
        """By our rules."""
        return self.ways["modelled"]

    def to_json(self) -> dict[str, Any]:
        """One line: the modelled way at the top, as ever, and all three below `ways`."""
        classes = {
            name: {"kernels": {"compiled": xla, "predicted": ours}, "bytes": {"compiled": there, "predicted": here}}
            for name, (ours, xla, here, there) in self.classes.items()
        }
        ways = {name: way.to_json() for name, way in self.ways.items()}
        calls = {name: {"compiled": there, "predicted": ours} for name, (ours, there) in self.calls.items()}
        named = {"id": self.id, "group": self.group}
        return named | self.modelled.to_json() | {"library_calls": calls, "classes": classes, "ways": ways}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringSummary:
    """Errors over the programs that were compared."""

    rows: tuple[LoweringRow, ...]

    def geomean_error(self, what: str, way: str = "modelled") -> float | None:
        """`exp(mean |ln(ours / XLA's)|) - 1` of "kernels" or "bytes"."""
        factors = [pair.factor for pair in self._pairs(what, way)]
        return math.expm1(sum(map(math.log, factors)) / len(factors)) if factors else None

    def share_within(self, what: str, way: str = "modelled") -> float | None:
        """Share of the programs that lie within 15 %."""
        errors = [abs(pair.error) for pair in self._pairs(what, way)]
        return sum(error <= WITHIN for error in errors) / len(errors) if errors else None

    def _pairs(self, what: str, way: str) -> list[Pair]:
        return [pair for row in self.rows if (pair := getattr(row.ways[way], what)) is not None]

    def to_json(self) -> dict[str, Any]:
        """The last line."""
        by_way = {
            way: {
                what: {
                    "geomean_error": self.geomean_error(what, way),
                    "within_15_percent": self.share_within(what, way),
                }
                for what in ("kernels", "bytes", "memory")
            }
            for way in WAYS
        }
        failed = sum(row.modelled.why is not None for row in self.rows)
        libraries = {
            name: {"apart": is_apart(name), "rows": len(part.rows)}
            | {what: part.geomean_error(what) for what in ("kernels", "bytes", "memory")}
            for name, part in self.by_library().items()
        }
        calls = {name: {"compiled": there, "predicted": ours} for name, (ours, there) in self.calls().items()}
        head = {"schema": "meshcast.validation/1", "kind": "lowering", "rows": len(self.rows), "failed": failed}
        return head | by_way["modelled"] | {"library_calls": calls, "ways": by_way, "libraries": libraries}

    def calls(self) -> dict[str, tuple[int, int]]:
        """Library calls of all programs, (modelled, in XLA's HLO)."""
        found = {name: [row.calls[name] for row in self.rows if name in row.calls] for name in LIBRARIES}
        return {name: (sum(p[0] for p in pairs), sum(p[1] for p in pairs)) for name, pairs in found.items() if pairs}

    def by_library(self) -> dict[str, LoweringSummary]:
        """The rows of each library, those set apart last."""
        names = sorted({row.library for row in self.rows if row.library}, key=lambda name: (is_apart(name), name))
        return {name: LoweringSummary(rows=tuple(r for r in self.rows if r.library == name)) for name in names}


def is_apart(library: str) -> bool:
    """Whether a library's programs judge only (docs/corpus.md): by the hash of its name, a third of them."""
    return hashlib.sha256(library.encode()).digest()[0] % 3 == 0


def validate_lowering(programs: Sequence[MeasuredProgram], device: Device) -> Iterator[LoweringRow]:
    """A row for each program, in order; compiled for `device`."""
    for program in programs:
        counted = sum(float(launch.get("count", 0.0)) for launch in program.launches)
        yield compare(program, program.kernel_count or counted, device)


def compare(program: MeasuredProgram, launches: float, device: Device) -> LoweringRow:
    """One program's row."""
    tries: dict[str, Callable[[], LoweredProgram | str]] = {
        "modelled": lambda: lower(read_workload(read_program(program.path))),
        "compiled": lambda: _compiled(program.path, device),
        "given": lambda: _given(program),
    }
    found: dict[str, LoweredProgram | str] = {}
    for name, attempt in tries.items():
        try:
            found[name] = attempt()
        except MeshcastError as error:
            found[name] = f"{error.code}: {error.message}"
    given, modelled = found["given"], found["modelled"]
    there = _bytes_moved(given) if isinstance(given, LoweredProgram) else 0
    if not launches and isinstance(given, LoweredProgram):
        launches = given.kernel_count  # of a program that was compiled and never run
    both = isinstance(given, LoweredProgram) and isinstance(modelled, LoweredProgram)
    return LoweringRow(
        id=program.id,
        group=program.group,
        library=program.library,
        ways={name: _way(lowered, launches, there, program, device) for name, lowered in found.items()},
        classes=_by_class(modelled, given) if both else {},  # type: ignore[arg-type]  # both are programs
        calls=_paired_calls(*[library_calls(way, device, tuned=program.tuned) for way in (modelled, given)])  # type: ignore[arg-type]
        if both
        else {},
    )


def _paired_calls(ours: Calls, theirs: Calls) -> dict[str, tuple[int, int]]:
    return {name: (ours.get(name, 0), theirs.get(name, 0)) for name in LIBRARIES if name in ours or name in theirs}


def _compiled(path: Path, device: Device) -> LoweredProgram | str:
    program = read_program(path)
    return why_not_compiled(program, device) or lower_compiled(program, device)


def _given(program: MeasuredProgram) -> LoweredProgram | str:
    text = program.optimized_text()
    return lower_hlo(text, name=program.id) if text is not None else "there is no optimized HLO of it"


def _way(
    lowered: LoweredProgram | str, launches: float, there: int, program: MeasuredProgram, device: Device
) -> LoweringWay:
    memory = program.memory_bytes
    if isinstance(lowered, str):
        return LoweringWay(why=lowered)
    count = lowered.kernel_count + hidden_launches(lowered, device)
    moved = _bytes_moved(lowered)
    known = lowered.lowering == "modelled" or lowered.memory is not None
    peak = peak_memory(lowered, device, tuned=program.tuned).peak if memory and known else 0
    return LoweringWay(
        memory=Pair(predicted=peak, measured=memory) if memory and peak else None,
        kernels=Pair(predicted=count, measured=launches) if launches and count else None,
        bytes=Pair(predicted=moved, measured=there) if there and moved else None,
    )


def _bytes_moved(lowered: LoweredProgram) -> int:
    return sum((kernel.read_bytes + kernel.written_bytes) * count for kernel, count in lowered.schedule.walk())


def _by_class(modelled: LoweredProgram, given: LoweredProgram) -> dict[str, tuple[int, int, int, int]]:
    found = {name: [0, 0, 0, 0] for name in CLASSES}
    for place, lowered in enumerate((modelled, given)):
        for kernel, count in lowered.schedule.walk():
            cells = found[_CLASS.get(kernel.kind, "loop")]
            cells[place] += count
            cells[place + 2] += count * (kernel.read_bytes + kernel.written_bytes)
    return {name: (a, b, c, d) for name, (a, b, c, d) in found.items() if a or b}


def lowering_grids(summary: LoweringSummary) -> list[TextTable]:
    """The table per program, and those by class of kernel where there is HLO to compare with."""
    grids = [_program_grid(summary), *([_library_grid(summary)] if summary.by_library() else [])]
    detailed = [row for row in summary.rows if row.classes]
    if detailed:
        header = ("program", *CLASSES)
        counts = tuple((row.id, *(_counts(row.classes.get(name)) for name in CLASSES)) for row in detailed)
        sizes = tuple((row.id, *(_sizes(row.classes.get(name)) for name in CLASSES)) for row in detailed)
        grids.append(TextTable(title="kernels by class, modelled / in XLA's HLO", header=header, rows=counts))
        grids.append(TextTable(title="GB by class, modelled / in XLA's HLO", header=header, rows=sizes))
    return grids


def _library_grid(summary: LoweringSummary) -> TextTable:
    """The modelled way's errors by library, and of all that are open or set apart."""
    parts = summary.by_library()
    apart, others = (
        LoweringSummary(rows=tuple(r for r in summary.rows if r.library and is_apart(r.library) is which))
        for which in (True, False)
    )
    lines = [*parts.items(), ("all open", others), ("all set apart", apart)]
    rows = tuple(
        (name, "apart" if is_apart(name) and name in parts else "", str(len(part.rows)),
         *(_percent(part.geomean_error(what)) for what in ("kernels", "bytes", "memory")))
        for name, part in lines
        if part.rows
    )  # fmt: skip
    header = ("library", "part", "programs", "kernels", "bytes", "peak memory")
    return TextTable(title="modelled lowering by library, geomean error", header=header, rows=rows)


def _program_grid(summary: LoweringSummary) -> TextTable:
    ways = [way for way in WAYS if any(row.ways[way].why is None for row in summary.rows)]
    shown = [(what, way) for what in ("kernels", "bytes") for way in ways if (what, way) != ("bytes", "given")]
    header = ("program", "group", "launches", "GB", *(f"{what} {way}" for what, way in shown), "library calls", "why")
    rows = [
        (
            row.id,
            row.group,
            *_truth(row),
            *(_ratio(getattr(row.ways[way], what)) for what, way in shown),
            _calls(row.calls),
            _whys(row),
        )
        for row in summary.rows
    ]
    for title, figure in (("geomean error", summary.geomean_error), ("within 15 %", summary.share_within)):
        rows.append((title, "", "", "", *(_percent(figure(what, way)) for what, way in shown), "", ""))
    rows.append(("in all", *("",) * (3 + len(shown)), _calls(summary.calls()), ""))
    return TextTable(
        title="lowering: ours / measured launches, ours / bytes in XLA's HLO", header=header, rows=tuple(rows)
    )


def _truth(row: LoweringRow) -> tuple[str, str]:
    kernels = next((way.kernels for way in row.ways.values() if way.kernels), None)
    moved = next((way.bytes for way in row.ways.values() if way.bytes), None)
    return f"{kernels.measured:.0f}" if kernels else "-", f"{moved.measured / 1e9:.3f}" if moved else "-"


def _whys(row: LoweringRow) -> str:
    """Why a way has no kernels; that the compiler or the HLO is not there goes without saying."""
    told = [row.modelled.why] if row.modelled.why else []
    why = row.ways["compiled"].why
    return "; ".join([*told, *([why] if why and why.startswith("unsupported:") else [])])


def _ratio(pair: Pair | None) -> str:
    return f"{pair.predicted / pair.measured:.2f}" if pair else "-"


def _counts(cells: tuple[int, int, int, int] | None) -> str:
    return f"{cells[0]} / {cells[1]}" if cells else "-"


def _calls(calls: dict[str, tuple[int, int]]) -> str:
    """Modelled / in XLA's HLO, library by library."""
    return ", ".join(f"{name} {ours}/{there}" for name, (ours, there) in calls.items()) or "-"


def _sizes(cells: tuple[int, int, int, int] | None) -> str:
    return f"{cells[2] / 1e9:.2f} / {cells[3] / 1e9:.2f}" if cells else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def print_lowering(summary: LoweringSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in lowering_grids(summary):
        print_grid(console, grid)
