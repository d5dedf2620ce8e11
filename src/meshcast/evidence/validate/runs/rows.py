"""Training runs that others measured, as typed cells: hardware, a model's shape, a plan, software, and seconds of a step.

One row is one run. A blank cell means that the source does not say; columns beyond `COLUMNS` are ignored. Grades say how much is
known: `A` everything is stated, `B` one or two things are assumed and named, `C` too little is known for the row to be scored.
A row that cannot be read is one that lacks something, like those that can: the others are still judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        InputError: The file cannot be read, is empty, or lacks a column.
    """
    optional = [name for name in COLUMNS if name not in NEEDED]
    columns = f"the columns are {', '.join(NEEDED)}, and of {', '.join(optional)} what is known (docs/runs.md)"
    return [_row(cells, line) for line, cells in csv_rows(path, NEEDED, fix=columns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """The texts of a line, and what is wrong with them."""

    text: Mapping[str, str]
    line: int
    unread: list[str]

    def number(self, name: str) -> float | None:
        return self._read(name, "a positive number", lambda value: 0 < value < float("inf"))

    def whole(self, name: str, *, least: int = 1) -> int | None:
        what = f"a whole number of at least {least}"
        found = self._read(name, what, lambda value: least <= value < float("inf") and value.is_integer())
        return None if found is None else int(found)

    def flag(self, name: str) -> bool | None:
        found = self._read(name, "0 or 1", lambda value: value in (0, 1))
        return None if found is None else bool(found)

    def wholes(self, names: tuple[str, ...], *, least: int) -> dict[str, int]:
        found = {name: self.whole(name, least=least) for name in names}
        return {name: value for name, value in found.items() if value is not None}

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
