"""Measured ops in a CSV: `id, source, chip, op, dtype, shape, time_us, notes`, one row a measurement.

`shape` is `key=value;key=value`. The notes say how a figure was taken, and what they say shapes the program: `trust=A` is
the grade (A device time, B noisy or derived, C host wall time or suspect), `chain 16` a loop of that many dependent steps
of which one is the figure, `epilogues fused in` a product with what follows it. Columns beyond these are ignored.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meshcast.base import InputError, UnsupportedError, UsageError, nearest
from meshcast.evidence.validate.csv_rows import csv_rows
from meshcast.hardware import device_names, resolve

COLUMNS = ("chip", "op", "dtype", "shape", "time_us")
UNGRADED = "-"
DEVICE_TIME, SLOPE = "device time", "chain, slope"
UNSTATED = "unstated"  # a type, or a way of measuring, that the row does not give
ASSUMED_TYPE = "bf16"  # of rows that state none
_NO_TYPE = frozenset({"", "unknown", UNSTATED})
# What is measured beside the op itself, or left out of it, by what the notes say; the first that fits.
METHODS = (
    ("weights prefetched", re.compile(r"weights? prefetched")),
    ("whole program", re.compile(r"whole jit program")),
    (DEVICE_TIME, re.compile(r"XProf|profiler device time|trace device time")),
    ("chain, host wall", re.compile(r"chain \d+ wall|wall median of chain|chain of \d+|\d+-op chain|per hop")),
    ("host wall", re.compile(r"host[- ]wall|timeit", re.IGNORECASE)),
    (SLOPE, re.compile(r"slope")),
)
_GRADE = re.compile(r"trust=(\w)")
_CHAIN = re.compile(r"chain (?:of )?(\d+)(?: vs (\d+))?|(\d+)-op chain")
_DTYPES = {
    "int8": "i8", "s8": "i8", "u8": "ui8", "uint8": "ui8", "int4": "i4", "s4": "i4", "s16": "i16", "s32": "i32",
    "int32": "i32", "u32": "ui32", "bfloat16": "bf16", "float16": "f16", "fp16": "f16", "float32": "f32", "fp32": "f32",
    "fp8": "f8E4M3FN", "f8": "f8E4M3FN", "f8e4m3": "f8E4M3FN", "f8e4m3fn": "f8E4M3FN", "float8_e4m3fn": "f8E4M3FN",
    "f8e5m2": "f8E5M2", "float8_e5m2": "f8E5M2", "pred": "i1",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One measurement."""

    id: str
    chip: str
    op: str
    dtype: str  # as the row spells it
    shape: Mapping[str, str] = field(hash=False)
    time_us: float | None
    source: str = ""
    notes: str = ""
    line: int | None = field(default=None, compare=False)  # of its table

    def place(self, table: str) -> str:
        """Where it stands in its table."""
        return f"{table}: row {self.id}" if self.line is None else f"{table}:{self.line}: row {self.id}"

    @property
    def grade(self) -> str:
        """A, B or C; `-` where the notes give none."""
        found = _GRADE.search(self.notes)
        return found[1] if found else UNGRADED

    @property
    def method(self) -> str:
        """What the figure holds beside the op, or lacks of it; `unstated` where the notes do not say."""
        return next((name for name, pattern in METHODS if pattern.search(self.notes)), UNSTATED)

    @property
    def trips(self) -> int:
        """Dependent steps in the program that was run; the figure is one of them."""
        found = _CHAIN.search(self.notes)
        return max((int(count) for count in found.groups() if count), default=1) if found else 1

    @property
    def generation(self) -> str:
        """The chip without remarks: `v4` of `v4(inferred)`."""
        return self.chip.partition("(")[0].strip().lower()

    @property
    def element(self) -> str:
        """The element type as MLIR spells it; `ASSUMED_TYPE` where the row states none."""
        return element_type(self.dtype)

    @property
    def stated_dtype(self) -> str:
        """The element type as the row spells it, or `unstated`."""
        name = self.dtype.strip()
        return UNSTATED if name.lower() in _NO_TYPE else name

    @property
    def text(self) -> str:
        """The shape as the row has it."""
        return ";".join(f"{key}={value}" for key, value in self.shape.items())

    def number(self, *names: str) -> int:
        """The first of these keys that the shape has, a positive whole number.

        Raises:
            InputError: It has none of them, or not a number.
        """
        for name in names:
            if name in self.shape:
                return _positive(self.shape[name], name)
        raise InputError(f"the shape {self.text!r} has no {' or '.join(names)}", where=self.id)

    def dims(self) -> tuple[int, ...]:
        """The op's tensor: `dims=8x128`, `layout=f16[8x128]`, else a vector of `elements`.

        Raises:
            InputError: The shape has none of them, or not numbers.
        """
        if "dims" in self.shape or "layout" in self.shape:
            text = self.shape.get("dims") or self.shape["layout"].partition("[")[2].rstrip("]")
            return tuple(_positive(part, "dims") for part in re.split(r"[x,*]", text))
        return (self.number("elements", "n"),)

    def has(self, *names: str) -> bool:
        """Whether the shape has all of these keys."""
        return all(name in self.shape for name in names)


def element_type(spelt: str) -> str:
    """An element type as MLIR spells it; `ASSUMED_TYPE` where none is stated."""
    name = spelt.strip().lower()
    return ASSUMED_TYPE if name in _NO_TYPE else _DTYPES.get(name, name)


def _positive(text: str, name: str) -> int:
    value = int(text) if text.strip().isdecimal() else 0
    if value < 1:
        raise InputError(f"{name}={text!r} is no positive whole number")
    return value


def device_of(row: OpRow) -> str:
    """The catalogue's device of a row: `tpu7x` is half a chip, as JAX counts devices.

    Raises:
        UnsupportedError: The catalogue has no such chip.
    """
    for name in (row.generation, f"tpu-{row.generation}"):
        with contextlib.suppress(UnsupportedError):
            return resolve(name).device.name
    known = [name for name in device_names() if name.startswith("tpu")]
    raise UnsupportedError(
        f"the catalogue has no device for chip {row.chip!r}: it has {', '.join(known)}", where=row.id
    )


def read_op_rows(path: Path) -> list[OpRow]:
    """The rows of a CSV.

    Raises:
        InputError: It cannot be read, is empty, or lacks a column.
    """
    columns = "the columns are id, source, " + ", ".join(COLUMNS) + ", notes"
    rows = csv_rows(path, COLUMNS, fix=columns, whole=True)
    return [_row(cells, number, line) for number, (line, cells) in enumerate(rows, 1)]


def _row(cells: Mapping[str, str | None], number: int, line: int) -> OpRow:
    def cell(name: str) -> str:
        return (cells.get(name) or "").strip()

    pairs = (part.partition("=") for part in cell("shape").split(";") if part.strip())
    return OpRow(
        id=cell("id") or f"row{number}",
        source=cell("source"),
        chip=cell("chip"),
        op=cell("op").lower(),
        dtype=cell("dtype"),
        shape={key.strip(): value.strip() for key, _, value in pairs},
        time_us=_time(cell("time_us")),
        notes=cell("notes"),
        line=line,
    )


def _time(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def measured_us(row: OpRow, table: str) -> float:
    """A row's time, for who learns from the table.

    Raises:
        InputError: It has none.
    """
    if row.time_us is None:
        raise InputError(
            "its time_us is no positive, finite number of microseconds",
            where=row.place(table),
            fix="correct the row, or take it out of the table",
        )
    return row.time_us


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """A choice of rows by chip, op and grade, and how many of them; an empty choice means all rows."""

    chips: Sequence[str] = ()
    ops: Sequence[str] = ()
    grades: Sequence[str] = ()
    sample: int | None = None  # at most so many of each chip, op and grade
    limit: int | None = None


def chosen_rows(rows: Sequence[OpRow], choice: RowChoice) -> list[OpRow]:
    """The rows that a choice leaves.

    Raises:
        UsageError: A chip, op or grade that no row has.
    """
    known_chips = {row.chip for row in rows} | {row.generation for row in rows}
    for asked, known, flag in (
        (choice.chips, known_chips, "--chip"),
        (choice.ops, {row.op for row in rows}, "--op"),
        (choice.grades, {row.grade for row in rows}, "--grade"),
    ):
        for name in asked:
            if name not in known:
                fix = nearest(name, known)
                if flag == "--grade" and known == {UNGRADED}:
                    fix = f"write trust={name} into the notes of rows that are device times, or --grade {UNGRADED}"
                raise UsageError(f"no row has {name!r}", where=flag, fix=fix)
    found = [
        row
        for row in rows
        if (not choice.chips or {row.chip, row.generation} & set(choice.chips))
        and (not choice.ops or row.op in choice.ops)
        and (not choice.grades or row.grade in choice.grades)
    ]
    if choice.sample is not None:
        found = list(_sampled(found, choice.sample))
    return found[: choice.limit]


def _sampled(rows: Iterable[OpRow], count: int) -> Iterator[OpRow]:
    """At most `count` of each chip, op and grade, at even steps through them, in the file's order."""
    groups: dict[tuple[str, str, str], list[OpRow]] = {}
    for row in rows:
        groups.setdefault((row.chip, row.op, row.grade), []).append(row)
    for group in groups.values():
        wanted = min(count, len(group))
        yield from (group[(2 * step + 1) * len(group) // (2 * wanted)] for step in range(wanted))
