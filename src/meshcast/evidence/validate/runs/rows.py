"""Training runs that others measured, as typed cells: hardware, a model's shape, a plan, software, and seconds of a step.

One row is one run. A blank cell means that the source does not say; other columns than `COLUMNS` are ignored, but for
nearly the same ones, which are refused. Grades say how much is known: `A` everything is stated, `B` one or two
things are assumed and named, `C` too little is known for the row to be scored.
A row that cannot be read is one that lacks something, like those that can: the others are still judged.
"""

from __future__ import annotations

import csv
import difflib
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import InputError
from meshcast.evidence.validate.csv_rows import Cells, csv_rows
from meshcast.jobs import COUNTS, DEGREES, FLAGS, Extras, StatedRun

NEEDED = ("id", "device", "devices", "model", "step_time_s")
_WORDS = (
    "source_url", "grade", "assumed", "device_note", "scale_up", "scale_out", "family", "precision", "recompute", "attention",
    "framework", "framework_version", "extra", "published_metric", "published_value", "step_time_formula",
)  # fmt: skip
_OTHERS = ("devices_per_host", "scale_out_gbps_per_device", "slices", "mbs", "zero")
COLUMNS = (*NEEDED, *_WORDS, *COUNTS, *DEGREES, *FLAGS, *_OTHERS)
UNSCORED = "C"
_UNREAD = ("document", "hsdp")  # columns of published tables that nothing reads
_NEAR = 0.85  # of difflib: a letter too many or too few of three, and none in place of another
_MOST = 1 << 31  # of what is counted, as in files of jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run that was measured.

    Attributes:
        run: The run as its source tells it.
        step_time_s: Seconds of an optimizer step.
        source: Where it was published.
        grade: How much is known of it.
        assumed: What whoever wrote the row took for granted.
        published: The source's own figure, `6667 tokens/s/GPU`.
        unread: What the row lacks to be read at all.
    """

    id: str
    run: StatedRun
    step_time_s: float | None
    source: str = ""
    grade: str = "A"
    assumed: str = ""
    published: str = ""
    unread: tuple[str, ...] = ()

    @property
    def scored(self) -> bool:
        """Whether enough is known of the run for its time to say something about ours."""
        return self.grade != UNSCORED


def read_run_rows(path: Path) -> list[RunRow]:
    """The rows of a CSV; those that cannot be read say so in `unread`.

    Raises:
        InputError: The file cannot be read, is empty, lacks a column, has one twice or misspelt, or two rows of one id.
    """
    optional = [name for name in COLUMNS if name not in NEEDED]
    columns = f"the columns are {', '.join(NEEDED)}, and of {', '.join(optional)} what is known (docs/runs.md)"
    found = csv_rows(path, NEEDED, fix=columns)
    _check_header(path)
    rows = [(line, _row(cells, line)) for line, cells in found]
    lines: dict[str, int] = {}
    for line, row in rows:
        if (first := lines.setdefault(row.id, line)) != line:
            raise InputError(
                f"two rows have the id {row.id!r}: lines {first} and {line}",
                where=f"{path}:{line}",
                fix="give each row an id of its own, or leave one of the two out",
            )
    return [row for _, row in rows]


def _check_header(path: Path) -> None:
    """Refuses a column that is there twice, and one that is nearly one of ours."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="", encoding="utf-8-sig") as lines:
        header = [name.strip() for name in next(csv.reader(lines, strict=True))]
    for name in dict.fromkeys(filter(None, header)):
        if (times := header.count(name)) > 1:
            places = ", ".join(str(place) for place, each in enumerate(header, 1) if each == name)
            raise InputError(
                f"the column {name} is there {times} times (as columns {places})",
                where=f"{path}:1",
                fix=f"leave one column {name}",
            )
        if name not in COLUMNS and name not in _UNREAD and (near := _nearly(name, COLUMNS)):
            raise InputError(
                f"no column {name!r} is known, did you mean {near!r}?",
                where=f"{path}:1",
                fix=f"write {near}, or give a column that is not to be read another name",
            )


def _nearly(name: str, known: Sequence[str]) -> str | None:
    """The known name that a misspelt one is meant for; None of one that is another."""
    told = name.lower().replace("-", "_").replace(" ", "_")
    swapped = next((each for each in known if sorted(each) == sorted(told)), None)
    return swapped or next(iter(difflib.get_close_matches(told, known, n=1, cutoff=_NEAR)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """The texts of a line, and what is wrong with them."""

    text: Mapping[str, str]
    line: int
    unread: list[str]

    def number(self, name: str) -> float | None:
        return self._read(name, "a positive number", lambda value: 0 < value < float("inf"))

    def whole(self, name: str, *, least: int = 1) -> int | None:
        what = f"a whole number of at least {least}{f', up to {_MOST:,},' if self._is_beyond(name) else ''}"
        found = self._read(name, what, lambda value: least <= value <= _MOST and value.is_integer())
        return None if found is None else int(found)

    def flag(self, name: str) -> bool | None:
        found = self._read(name, "0 or 1", lambda value: value in (0, 1))
        return None if found is None else bool(found)

    def wholes(self, names: tuple[str, ...], *, least: int) -> dict[str, int]:
        found = {name: self.whole(name, least=least) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def _is_beyond(self, name: str) -> bool:
        try:
            return _MOST < float(self.text.get(name) or 0) < float("inf")
        except ValueError:
            return False

    def _read(self, name: str, what: str, fits: Callable[[float], bool]) -> float | None:
        text = self.text.get(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if fits(value):
            return value
        self.unread.append(f"{what} for {name}: line {self.line} has {text!r}")
        return None


def _row(cells: Cells, line: int) -> RunRow:
    text = {key: value.strip() for key, value in cells.items() if key and isinstance(value, str)}
    unread: list[str] = []
    # Of a run that is not scored nobody says how long its step took.
    needed = [name for name in NEEDED if name != "step_time_s" or text.get("grade") != UNSCORED]
    if blank := [name for name in needed if not text.get(name)]:
        unread.append(f"{', '.join(blank)} (blank in line {line})")
    beyond: Any = next((value for key, value in cells.items() if not key), None)  # the csv module's list of the rest
    if beyond and any(beyond):
        unread.append(
            f"a cell for each column of the header: line {line} has {len(beyond)} more (quote cells with commas)"
        )
    read = _Cells(text=text, line=line, unread=unread)
    flags = {name: read.flag(name) for name in FLAGS}
    run = StatedRun(
        device=text.get("device", "").lower(),
        devices=read.whole("devices") or 0,
        model=text.get("model", "").lower(),
        device_note=text.get("device_note", ""),
        devices_per_host=read.whole("devices_per_host"),
        scale_up=text.get("scale_up", "").lower(),
        scale_out=text.get("scale_out", "").lower(),
        gbit_per_device=read.number("scale_out_gbps_per_device"),
        slices=read.whole("slices"),
        counts=read.wholes(tuple(name for name in COUNTS if name != "shared_experts"), least=1)
        | read.wholes(("shared_experts",), least=0),
        degrees=read.wholes(DEGREES, least=0),
        mbs=read.number("mbs"),
        precision=text.get("precision", "").lower(),
        zero=read.whole("zero", least=0),
        recompute=text.get("recompute", "").lower(),
        attention=text.get("attention", "").lower(),
        framework=text.get("framework", "").lower(),
        framework_version=text.get("framework_version", ""),
        flags={name: value for name, value in flags.items() if value is not None},
        extra=Extras.read(text.get("extra", "")),
    )
    return RunRow(
        id=text.get("id") or f"line {line}",
        run=run,
        step_time_s=read.number("step_time_s"),
        source=text.get("source_url", ""),
        grade=text.get("grade", "").upper() or "A",
        assumed=text.get("assumed", ""),
        published=" ".join(filter(None, (text.get("published_value", ""), text.get("published_metric", "")))),
        unread=tuple(unread),
    )
