"""ASTRA-sim's own answers against our preset of its rules (or against its programs, where they are installed).

A CSV of `backend, topology, npus_count, bandwidth_GBps, latency_ns, algorithm, chunks, endpoint_delay_ns, collective,
comm_size_bytes, finish_ns`, one collective a row; what has a value for each dimension is joined by "x" (`8x16`). Columns
beyond these are ignored. The rest is the same for all rows of a file: see `AstraSetting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from meshcast.base import InputError, nearest
from meshcast.evidence.validate.csv_rows import csv_rows
from meshcast.evidence.validate.programs import ProgramRow, in_processes, why_failed
from meshcast.evidence.validate.summary import SCHEMA, FigureMeasures, compare, farthest
from meshcast.evidence.validate.tables import TextTable, extra_grid, failed_grid, print_grid, wide_console, worst_grid
from meshcast.hardware import ASTRA_SHAPES, MOST_NPUS, AstraDimension, AstraNetwork
from meshcast.network import (
    ASTRA_BACKENDS,
    ASTRA_KINDS,
    AstraBackend,
    AstraKind,
    AstraSource,
    AstraSystem,
    finish_ns,
    run_collective,
)

COLUMNS = (
    "backend", "topology", "npus_count", "bandwidth_GBps", "latency_ns", "algorithm", "chunks", "endpoint_delay_ns",
    "collective", "comm_size_bytes", "finish_ns",
)  # fmt: skip
BREAKDOWNS = ("backend", "topology", "algorithm", "collective")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSetting:
    """The settings of ASTRA-sim that no column of the table has.

    Attributes:
        optimisation: How an all-reduce takes several dimensions.
        active_chunks: Chunks at work in a dimension.
        local_memory_bandwidth: 10**9 bytes/s.
    """

    optimisation: Literal["baseline", "localBWAware"] = "localBWAware"
    active_chunks: int = 1
    local_memory_bandwidth: float = 1600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraRow:
    """One collective and what ASTRA-sim says of it."""

    id: str
    cells: Mapping[str, str] = field(hash=False)
    network: AstraNetwork
    system: AstraSystem
    backend: AstraBackend
    kind: AstraKind
    size: int
    finish_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraResult:
    """A row and our answer, or why there is none."""

    asked: AstraRow = field(repr=False)
    row: ProgramRow

    @property
    def off(self) -> float | None:
        """The difference from ASTRA-sim's answer, as a share of it."""
        return abs(self.row.time.error) if self.row.time else None

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row, and what it was."""
        return {**self.row.to_json(), **{name: self.asked.cells[name] for name in COLUMNS[:-1]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSummary:
    """The whole of a validation."""

    results: tuple[AstraResult, ...] = field(repr=False)
    not_run: int = 0

    @property
    def time(self) -> FigureMeasures:
        """By backend, topology and algorithm."""
        return compare((result.row for result in self.results), lambda row: row.time)

    def by(self, column: str) -> FigureMeasures:
        """By one column."""
        rows = (replace(result.row, group=result.asked.cells[column]) for result in self.results)
        return compare(rows, lambda row: row.time)

    @property
    def failed(self) -> list[ProgramRow]:
        """Rows without an answer."""
        return [result.row for result in self.results if result.row.time is None]

    def largest(self, backend: str | None = None) -> float | None:
        """The largest error of a backend, or of all; None where nothing was answered."""
        asked = (r for r in self.results if backend in (None, r.asked.backend))
        return max((off for result in asked if (off := result.off) is not None), default=None)

    @property
    def equal(self) -> int:
        """Rows with the same whole number of nanoseconds."""
        return sum(result.off == 0 for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """The contract's last line; what is not in the contract stands after it."""
        return {
            "schema": SCHEMA,
            "kind": "astra",
            **self.time.to_json(),
            "max_error": self.largest(),
            "max_error_by_backend": {name: off for name in ASTRA_BACKENDS if (off := self.largest(name)) is not None},
            "equal": self.equal,
            "by": {
                column: {name: group.to_json() for name, group in self.by(column).groups.items()}
                for column in BREAKDOWNS
            },
            "worst": [row.id for row in farthest(result.row for result in self.results)],
            "failures": {row.id: row.why for row in self.failed},
            "not_run": self.not_run,
        }


def validate_astra(rows: Sequence[AstraRow], *, source: AstraSource = "preset", jobs: int = 1) -> Iterator[AstraResult]:
    """An answer for each row, in order, as soon as it is known.

    Args:
        rows: What to ask.
        source: Our preset, or ASTRA-sim's own programs.
        jobs: Processes to ask in; 1 stays in this one.
    """
    yield from in_processes(partial(_judged, source=source), rows, jobs)


def _judged(asked: AstraRow, source: AstraSource) -> AstraResult:
    cells = asked.cells
    row = ProgramRow(
        id=asked.id, group=f"{cells['backend']}/{cells['topology']}/{cells['algorithm']}",
        measured=asked.finish_ns / 1e3, predicted=None,
    )  # fmt: skip
    try:
        if source == "preset":
            found = finish_ns(asked.network, asked.system, asked.kind, asked.size, asked.backend)
        else:
            found = run_collective(asked.network, asked.system, asked.kind, asked.size, asked.backend).finish_ns
    except Exception as error:  # this row's failure, or a bug: named in the row, so that the others are still judged
        return AstraResult(asked=asked, row=replace(row, why=why_failed(error)))
    return AstraResult(asked=asked, row=replace(row, predicted=found / 1e3))


def read_astra_rows(path: Path, setting: AstraSetting) -> list[AstraRow]:
    """The rows of a CSV.

    Raises:
        InputError: It cannot be read, is empty, lacks a column, or a cell is none that ASTRA-sim takes.
    """
    found = csv_rows(path, COLUMNS, fix="the columns are " + ", ".join(COLUMNS))
    return [_row(cells, number, path, setting) for number, (_, cells) in enumerate(found, 1)]


def _row(raw: Mapping[str, str | None], number: int, path: Path, setting: AstraSetting) -> AstraRow:
    cells = {name: (raw.get(name) or "").strip() for name in (*COLUMNS, "id")}
    where = f"{path}: row {number}"

    def known(column: str, value: str, choices: Sequence[T]) -> T:
        if value not in choices:
            raise InputError(f"{column} is {value!r}", where=where, fix=nearest(value, map(str, choices)))
        return choices[[str(choice) for choice in choices].index(value)]

    def positive(column: str, value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise InputError(f"{column} is {value!r}, not a number of 0 or more", where=where)
        return found

    shapes = cells["topology"].split("x")
    columns = [cells[name].split("x") for name in ("npus_count", "bandwidth_GBps", "latency_ns", "algorithm")]
    if any(len(column) != len(shapes) for column in columns):
        raise InputError(f"{cells['topology']} has {len(shapes)} dimensions, other cells have not so many", where=where)
    dimensions = tuple(
        AstraDimension(
            shape=known("topology", shape, ASTRA_SHAPES), npus=int(positive("npus_count", npus)),
            bandwidth=positive("bandwidth_GBps", bandwidth), latency_ns=positive("latency_ns", latency),
        )
        for shape, npus, bandwidth, latency in zip(shapes, *columns[:3], strict=True)
    )  # fmt: skip
    if bad := [d for d in dimensions if not 2 <= d.npus <= MOST_NPUS or d.bandwidth == 0]:
        raise InputError(f"a dimension of {bad[0].npus} NPUs at {bad[0].bandwidth} GB/s", where=where)
    kind = known("collective", cells["collective"], ASTRA_KINDS)
    system = AstraSystem(
        splits=int(positive("chunks", cells["chunks"])),
        endpoint_delay_ns=int(positive("endpoint_delay_ns", cells["endpoint_delay_ns"])),
        active_chunks=setting.active_chunks, optimisation=setting.optimisation,
        local_memory_bandwidth=setting.local_memory_bandwidth, **{kind: tuple(columns[3])},  # type: ignore[arg-type]
    )  # fmt: skip
    finish = int(positive("finish_ns", cells["finish_ns"]))
    if finish == 0:
        raise InputError("finish_ns is 0", where=where, fix="every row needs ASTRA-sim's answer")
    made_id = " ".join(cells[name] for name in COLUMNS if name not in ("endpoint_delay_ns", "finish_ns"))
    return AstraRow(
        id=cells["id"] or made_id, cells=cells, network=AstraNetwork(dimensions=dimensions), system=system,
        backend=known("backend", cells["backend"], ASTRA_BACKENDS), kind=kind,
        size=int(positive("comm_size_bytes", cells["comm_size_bytes"])), finish_ns=finish,
    )  # fmt: skip


def print_astra(summary: AstraSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    print_grid(console, extra_grid("time by backend, topology and algorithm", summary.time))
    cells = []
    for name in (*ASTRA_BACKENDS, None):
        rows = [r for r in summary.results if name in (None, r.asked.backend)]
        off = summary.largest(name)
        if rows:
            equal = sum(result.off == 0 for result in rows)
            cells.append((name or "all", str(len(rows)), str(equal), "-" if off is None else f"{off:.4%}"))
    header = ("backend", "rows", "equal to the ns", "largest error")
    print_grid(console, TextTable(title="largest errors", header=header, rows=tuple(cells)))
    print_grid(console, worst_grid("worst rows", farthest(result.row for result in summary.results)))
    if summary.failed:
        print_grid(console, failed_grid(summary.failed))
    if summary.not_run:
        console.print(f"interrupted: {summary.not_run} rows were not run")
