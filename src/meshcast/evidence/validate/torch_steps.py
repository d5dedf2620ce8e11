"""PyTorch's models against runs of them, eager and compiled: `validate torch`.

A folder has `cases.py`, whose functions give what `predict cases.py:NAME` takes, and `measurements.jsonl[.gz]`: a row for each
case and `mode` with `wall_us` (a loop of steps, host clock), and where they are known `busy_us`, `peak_bytes`
(`torch.cuda.max_memory_allocated`) and `kernel_count`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from meshcast.base import InputError
from meshcast.estimate import measurement_objects
from meshcast.evidence.validate.measures import Measures, measure
from meshcast.evidence.validate.programs import UNIT, Pair, in_processes, why_failed, why_untimed
from meshcast.evidence.validate.tables import TextTable, print_grid, wide_console
from meshcast.jobs import predict
from meshcast.options import Options
from meshcast.results import Prediction

STACKS = {"eager": "pytorch-eager", "compiled": "pytorch-compile"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRun:
    """One measured case."""

    id: str
    mode: str
    cases: Path
    wall_us: float
    busy_us: float | None = None
    peak_bytes: float | None = None
    kernels: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRow:
    """One case in one mode: what was predicted and measured, or why there is no prediction."""

    run: TorchRun
    time: Pair | None = None
    busy: Pair | None = None  # seconds in which kernels ran: what is left of the time where the host does not count
    memory: Pair | None = None
    kernels: Pair | None = None
    interval: tuple[float, float] | None = None
    why: str | None = None

    @property
    def pairs(self) -> tuple[Pair | None, ...]:
        """Step time, time of the device, memory and kernels."""
        return self.time, self.busy, self.memory, self.kernels

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds what was measured."""
        return None if self.interval is None else self.interval[0] <= self.run.wall_us <= self.interval[1]

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row."""
        line: dict[str, Any] = {
            "id": self.run.id,
            "group": self.run.mode,
            "measured": self.run.wall_us,
            "predicted": self.time.predicted if self.time else None,
            "unit": UNIT,
            "error": self.time.error if self.time else None,
        }
        for name, pair in (("busy_us", self.busy), ("memory_bytes", self.memory), ("kernels", self.kernels)):
            if pair is not None:
                line[name] = {"measured": pair.measured, "predicted": pair.predicted}
        if self.interval is not None:
            line["interval"] = list(self.interval)
        return line | ({"why": self.why} if self.why is not None else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSummary:
    """All rows; those of the cases `apart` are told first, and on their own."""

    rows: tuple[TorchRow, ...]
    apart: Collection[str] = ()
    not_run: int = 0

    def of(self, mode: str | None, *, apart: bool | None = None) -> list[TorchRow]:
        """Rows of a mode, and of the cases that were set apart, or of the others."""
        return [row for row in self.rows if mode in (None, row.run.mode) and apart in (None, row.run.id in self.apart)]

    def groups(self) -> dict[str, Measures]:
        """Errors of step times by mode, of cases set apart first."""
        found: dict[str, Measures] = {}
        for apart in (True, None) if self.apart else (None,):
            for mode in STACKS:
                if rows := self.of(mode, apart=apart):
                    found[f"{mode}, set apart" if apart else mode] = _measures(rows)
        return found

    def to_json(self) -> dict[str, Any]:
        """The contract's summary."""
        return {
            "schema": "meshcast.validation/1",
            "kind": "torch",
            **_measures(list(self.rows)).to_json(),
            "not_run": self.not_run,
            "groups": {name: found.to_json() for name, found in self.groups().items()},
            "inside_interval": coverage(self.rows),
            "busy_geomean_error": geomean_error(row.busy for row in self.rows),
            "memory_geomean_error": geomean_error(row.memory for row in self.rows),
            "kernels_geomean_error": geomean_error(row.kernels for row in self.rows),
        }


def _measures(rows: Sequence[TorchRow]) -> Measures:
    pairs = [row.time for row in rows if row.time is not None]
    return measure([p.predicted for p in pairs], [p.measured for p in pairs], failed=len(rows) - len(pairs))


def coverage(rows: Sequence[TorchRow]) -> float | None:
    """The share of rows whose interval holds what was measured."""
    judged = [row.inside for row in rows if row.inside is not None]
    return sum(judged) / len(judged) if judged else None


def geomean_error(pairs: Any) -> float | None:
    """exp(mean |ln(predicted / measured)|) - 1 of those that there are."""
    logs = [math.log(pair.factor) for pair in pairs if pair is not None]
    return math.exp(sum(logs) / len(logs)) - 1 if logs else None


def read_torch_runs(folder: Path, *, modes: Collection[str] = ()) -> list[TorchRun]:
    """The rows of a folder.

    Raises:
        InputError: It has no cases, or a row lacks its case, its mode or its time.
    """
    cases = folder / "cases.py"
    if not cases.is_file():
        raise InputError(
            "no cases.py in it", where=str(folder), fix="functions NAME() that return (module, args, options)"
        )
    found = []
    for data, where in measurement_objects(folder):
        wall = data.get("wall_us")
        if (
            not isinstance(data.get("id"), str)
            or data.get("mode") not in STACKS
            or not isinstance(wall, (int, float))
            or wall <= 0
        ):
            raise InputError(
                f"a row needs id, a mode ({' or '.join(STACKS)}) and wall_us above 0",
                where=where,
                fix="complete the row",
            )
        run = TorchRun(
            id=data["id"], mode=data["mode"], cases=cases, wall_us=wall, busy_us=data.get("busy_us"),
            peak_bytes=data.get("peak_bytes"), kernels=data.get("kernel_count"),
        )  # fmt: skip
        found += [run] if not modes or run.mode in modes else []
    return found


def validate_torch(runs: Sequence[TorchRun], options: Options, *, jobs: int = 1) -> Iterator[TorchRow]:
    """A row for each run, in order."""
    yield from in_processes(partial(judge_torch, options=options), runs, jobs)


def judge_torch(run: TorchRun, options: Options) -> TorchRow:
    """One run's row; whatever goes wrong is the row's `why`."""
    try:
        found = predict(f"{run.cases}:{run.id}", options, stack=STACKS[run.mode])
    except Exception as error:  # ours or a bug: named in the row, so that the others are still judged
        return TorchRow(run=run, why=why_failed(error))
    if (reason := why_untimed(found)) or found.step_time_s is None:
        return TorchRow(run=run, why=reason)
    low, high = found.interval_s or (found.step_time_s, found.step_time_s)
    return TorchRow(
        run=run,
        time=Pair(predicted=found.step_time_s * 1e6, measured=run.wall_us),
        busy=Pair(predicted=_busy_us(found), measured=run.busy_us) if run.busy_us else None,
        memory=Pair(predicted=found.memory.peak, measured=run.peak_bytes) if run.peak_bytes else None,
        kernels=Pair(predicted=found.kernels, measured=run.kernels) if run.kernels else None,
        interval=(low * 1e6, high * 1e6),
    )


def _busy_us(found: Prediction) -> float:
    """Microseconds in which kernels run, with what it takes each to begin and to end: a profiler counts that as the kernel's."""
    assert found.timed is not None
    spent = found.timed.breakdown
    return (spent.compute + spent.memory + spent.overhead) * 1e6


def torch_grids(summary: TorchSummary) -> list[TextTable]:
    """The rows, and the errors by mode."""
    header = (
        "case",
        "mode",
        "measured ms",
        "predicted ms",
        "ratio",
        "device",
        "peak memory",
        "kernels",
        "inside",
        "why",
    )
    order = sorted(summary.rows, key=lambda row: row.run.id not in summary.apart)
    rows = [
        (
            row.run.id + (" (set apart)" if row.run.id in summary.apart else ""),
            row.run.mode,
            f"{row.run.wall_us / 1e3:.2f}",
            f"{row.time.predicted / 1e3:.2f}" if row.time else "-",
            *(f"{pair.predicted / pair.measured:.2f}" if pair else "-" for pair in row.pairs),
            {True: "yes", False: "no", None: "-"}[row.inside],
            row.why or "",
        )
        for row in order
    ]
    errors = []
    for name, found in summary.groups().items():
        mode, _, apart = name.partition(",")
        chosen = summary.of(mode, apart=True if apart else None)
        figures = (
            *(geomean_error(row.pairs[part] for row in chosen) for part in range(4)),
            coverage(chosen),
        )
        shown = ("-" if figure is None else f"{figure:.1%}" for figure in figures)
        errors.append(
            (name, str(found.rows), str(found.failed), *shown, "-" if found.bias is None else f"{found.bias:+.1%}")
        )
    wanted = (
        "rows",
        "rows",
        "failed",
        "step time",
        "device",
        "peak memory",
        "kernels",
        "inside interval",
        "bias of time",
    )
    return [
        TextTable(title="PyTorch: predicted / measured", header=header, rows=tuple(rows)),
        TextTable(title="Geomean error", header=wanted, rows=tuple(errors)),
    ]


def print_torch(summary: TorchSummary) -> None:
    """The tables on the terminal."""
    console = wide_console()
    for grid in torch_grids(summary):
        print_grid(console, grid)
