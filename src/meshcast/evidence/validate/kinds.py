"""Kinds of kernel by how far their times are off, over a folder of measured programs: `validate programs --kinds`.

Inside CUDA graphs a profiler tells kernels' names alone, and XLA numbers its fusions anew in every compilation. So launches are
put together by kind: what fusions are called without their numbers (`input_reduce_fusion`) where both sides have the name, else
the class of work (`evidence.profiler.classes`). Products, convolutions, attention, sorts and copies are named by libraries and
drivers, and stay classes.

A program weighs as much as any other: seconds are shares of what its measured kernels take. Rows that keep their longest kernels
alone say too little of the short ones; `seen` is the share of the device's busy time that a row's kernels are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from meshcast.estimate import MeasuredProgram
from meshcast.evidence.comparison.reality.matching import plain_name
from meshcast.evidence.comparison.reality.predicted import class_of_kernel
from meshcast.evidence.profiler.classes import ATTENTION, CONVOLUTION, COPY, MATMUL, SORT, class_of
from meshcast.evidence.profiler.trace import MeasuredKernel
from meshcast.evidence.validate.programs import in_processes, why_failed
from meshcast.evidence.validate.tables import TextTable, print_grid, wide_console
from meshcast.options import Options
from meshcast.programs import load

SCHEMA = "meshcast.validation-kinds/1"
SHOWN = 30  # kinds of the printed table; --json has all
GRAPH = "command_buffer"  # how XLA's names of CUDA graphs begin
_NUMBERS = re.compile(r"(_\d+)+$")
_NAMED_BY_LIBRARIES = frozenset({MATMUL, CONVOLUTION, ATTENTION, COPY, SORT})


@dataclass(slots=True)
class KindTime:
    """Launches of a kind, and what they take: predicted and measured, in shares of programs' measured kernels."""

    predicted: float = 0.0
    measured: float = 0.0
    predicted_launches: float = 0.0
    measured_launches: float = 0.0

    @property
    def difference(self) -> float:
        """Predicted less measured."""
        return self.predicted - self.measured

    def add(self, other: KindTime) -> None:
        """Adds the times and launches of another program."""
        self.predicted += other.predicted
        self.measured += other.measured
        self.predicted_launches += other.predicted_launches
        self.measured_launches += other.measured_launches

    def to_json(self) -> dict[str, float]:
        """The object of a kind."""
        return {
            "predicted": self.predicted,
            "measured": self.measured,
            "predicted_launches": self.predicted_launches,
            "measured_launches": self.measured_launches,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramKinds:
    """One program's kernels by kind, or why there are none."""

    id: str
    kinds: dict[str, KindTime] = field(default_factory=dict)
    seen: float = 0.0
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The row's object."""
        line: dict[str, Any] = {"id": self.id, "kinds": {name: kind.to_json() for name, kind in self.kinds.items()}}
        return line | ({"why": self.why} if self.why else {"seen": self.seen})


def validate_kinds(programs: Sequence[MeasuredProgram], options: Options, *, jobs: int = 1) -> Iterator[ProgramKinds]:
    """A row for each program, in order."""
    yield from in_processes(partial(kinds_of, options=options), programs, jobs)


def kinds_of(program: MeasuredProgram, options: Options) -> ProgramKinds:
    """One program's kernels by kind; those that XLA made where its optimised HLO was kept and no others are asked for."""
    launches = [each for each in program.launches if "us" in each and "count" in each]
    if not launches:
        return ProgramKinds(id=program.id, why="unmeasured: no kernels")
    given = program.optimized if options.asked_lowering != "modelled" else None
    told = options.having(indices=program.indices or options.program.indices, clocks="burst")
    try:
        run = load(given or program.path).on(told.on, told.having(approximate=True) if given else told)
        ours = [(run.kernels[kernel].time, kernel, count) for kernel, count in run.lowered.schedule.walk()]
    except Exception as error:  # ours or a bug: named in the row, so that the others are still judged
        return ProgramKinds(id=program.id, why=why_failed(error))
    mine: dict[str, str] = {}  # one class for all kernels of a name, on both sides
    for _, kernel, _ in ours:
        mine.setdefault(_root(kernel.name), class_of_kernel(kernel))
    theirs = [_named(str(each["hlo_op"]), str(each["kernel"])) for each in launches]
    shared = mine.keys() & {_root(each.op or each.name) for each in theirs}
    whole = sum(float(each["us"]) for each in launches)
    kinds: defaultdict[str, KindTime] = defaultdict(KindTime)
    for seconds, kernel, count in ours:
        kind = kinds[_kind(root := _root(kernel.name), mine[root], shared)]
        kind.predicted += seconds * 1e6 * count / whole
        kind.predicted_launches += count
    for launch, named in zip(launches, theirs, strict=True):
        root = _root(named.op or named.name)
        kind = kinds[_kind(root, mine.get(root, class_of(named)), shared)]
        kind.measured += float(launch["us"]) / whole
        kind.measured_launches += float(launch["count"])
    return ProgramKinds(id=program.id, kinds=dict(kinds), seen=whole / program.busy_us if program.busy_us else 0.0)


def _named(instruction: str, kernel: str) -> MeasuredKernel:
    inside = instruction.startswith(GRAPH)
    return MeasuredKernel(name=kernel, op="" if inside else instruction, start=0.0, duration=0.0)


def _root(name: str) -> str:
    return _NUMBERS.sub("", plain_name(name))


def _kind(root: str, work: str, shared: set[str]) -> str:
    return f"{work}: {root}" if root in shared and work not in _NAMED_BY_LIBRARIES else work


@dataclass(frozen=True, slots=True, kw_only=True)
class KindsSummary:
    """Kinds of all programs."""

    rows: tuple[ProgramKinds, ...]

    def kinds(self) -> list[tuple[str, KindTime, int]]:
        """Each kind with its times and in how many programs it is, those that are off by most first."""
        found: defaultdict[str, KindTime] = defaultdict(KindTime)
        programs: Counter[str] = Counter()
        for row in self.rows:
            for name, kind in row.kinds.items():
                found[name].add(kind)
                programs[name] += 1
        return [
            (name, kind, programs[name])
            for name, kind in sorted(found.items(), key=lambda item: -abs(item[1].difference))
        ]

    def to_json(self) -> dict[str, Any]:
        """The summary's object."""
        kinds = {name: kind.to_json() | {"programs": count} for name, kind, count in self.kinds()}
        failed = sum(row.why is not None for row in self.rows)
        return {
            "schema": SCHEMA,
            "rows": len(self.rows),
            "failed": failed,
            "kinds": kinds,
        }


def kinds_grid(summary: KindsSummary) -> TextTable:
    """The kinds that are off by most, in percent of one program's measured kernels on average over all."""
    count = max(1, sum(row.why is None for row in summary.rows))
    rows = [
        (
            name,
            f"{kind.difference / count:+.2%}",
            f"{kind.predicted / count:.2%}",
            f"{kind.measured / count:.2%}",
            f"{kind.predicted / kind.measured:.2f}" if kind.measured else "-",
            f"{kind.predicted_launches:,.0f}",
            f"{kind.measured_launches:,.0f}",
            f"{programs}",
        )
        for name, kind, programs in summary.kinds()[:SHOWN]
    ]
    header = ("kind", "off by", "predicted", "measured", "ratio", "launches", "measured launches", "programs")
    return TextTable(title="kinds of kernel, in shares of a program", header=header, rows=tuple(rows))


def print_kinds(summary: KindsSummary) -> None:
    """Prints the table, how many kinds it leaves out, and the rows that failed."""
    console = wide_console()
    print_grid(console, kinds_grid(summary))
    if (more := len(summary.kinds()) - SHOWN) > 0:
        console.print(f"{more} more kinds are off by less; --json has them")
    done = [row for row in summary.rows if row.why is None]
    if done:
        seen = sum(row.seen for row in done) / len(done)
        console.print(f"{len(done)} programs; their measured kernels are {seen:.0%} of their devices' busy time")
    for row in summary.rows:
        if row.why is not None:
            console.print(f"{row.id}: {row.why}")
