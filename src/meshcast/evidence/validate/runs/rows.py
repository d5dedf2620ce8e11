"""Published training runs in a CSV: hardware, a model's shape, a batch, a plan, and one figure that was measured.

A blank cell means that the source does not say. Columns beyond `COLUMNS` and `OPTIONAL` are ignored. A row that cannot be
read is one that lacks something, like those that can: the others are still judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshcast.evidence.validate.csv_rows import Cells, csv_rows

COLUMNS = ("id", "hardware", "devices", "model", "metric", "value")
SHAPE = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq")
DEGREES = ("dp", "fsdp", "tp", "sp", "pp", "vp", "ep", "cp")
_COUNTS = (*SHAPE, "gbs", "mbs")
OPTIONAL = ("source_url", "stack", "params_b", *_COUNTS, *DEGREES, "precision", "recompute", "other", "notes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run as its source tells it.

    Attributes:
        counts: The model's shape and the batches (`gbs`: sequences or samples a step, `mbs`: a microbatch's), where told.
        degrees: The parallel degrees, where told; 0 says that this kind was not used.
        stack: The software stack, where a column names it.
        unread: What the row lacks to be read at all; where there is anything, `devices` may be 0 and `value` None.
    """

    id: str
    hardware: str
    devices: int
    model: str
    metric: str
    value: float | None
    counts: Mapping[str, int] = field(default_factory=dict)
    degrees: Mapping[str, int] = field(default_factory=dict)
    parameters: float | None = None
    precision: str = ""
    recompute: str = ""
    other: str = ""
    notes: str = ""
    source: str = ""
    stack: str = ""
    unread: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Everything said in words about how it ran, in lower case."""
        return " ".join((self.model, self.precision, self.recompute, self.other, self.notes)).lower()


def read_run_rows(path: Path) -> list[RunRow]:
    """The rows of a CSV; those that cannot be read say so in `unread`.

    Raises:
        InputError: The file cannot be read, is empty, or lacks a column.
    """
    columns = f"the columns are {', '.join(COLUMNS)}, and of {', '.join(OPTIONAL)} what is known"
    return [_row(cells, line) for line, cells in csv_rows(path, COLUMNS, fix=columns)]


def _row(cells: Cells, line: int) -> RunRow:
    text = {key: value.strip() for key, value in cells.items() if key and isinstance(value, str)}
    unread: list[str] = []
    if blank := [name for name in COLUMNS if not text.get(name)]:
        unread.append(f"{', '.join(blank)} (blank in line {line})")
    beyond = next(
        (value for key, value in cells.items() if not key), None
    )  # the csv module's list of what is left over
    if beyond and any(beyond):
        unread.append(
            f"a cell for each column of the header: line {line} has {len(beyond)} more (quote cells with commas)"
        )

    def number(name: str) -> float | None:
        return _number(text[name], name, line, unread) if text.get(name) else None

    def wholes(names: tuple[str, ...], *, least: int) -> dict[str, int]:
        found = {name: _whole(text[name], name, line, unread, least=least) for name in names if text.get(name)}
        return {name: value for name, value in found.items() if value is not None}

    parameters = number("params_b")
    return RunRow(
        id=text.get("id") or f"line {line}",
        hardware=text.get("hardware", ""),
        devices=wholes(("devices",), least=1).get("devices", 0),
        model=text.get("model", ""),
        metric=text.get("metric", ""),
        value=number("value"),
        counts=wholes(_COUNTS, least=1),
        degrees=wholes(DEGREES, least=0),
        parameters=parameters * 1e9 if parameters else None,
        precision=text.get("precision", ""),
        recompute=text.get("recompute", ""),
        other=text.get("other", ""),
        notes=text.get("notes", ""),
        source=text.get("source_url", ""),
        stack=text.get("stack", ""),
        unread=tuple(unread),
    )


def _number(text: str, name: str, line: int, unread: list[str]) -> float | None:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 < value < float("inf"):
        return value
    unread.append(f"a positive number for {name}: line {line} has {text!r}")
    return None


def _whole(text: str, name: str, line: int, unread: list[str], *, least: int) -> int | None:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value >= least and value.is_integer():
        return int(value)
    unread.append(f"a whole number of at least {least} for {name}: line {line} has {text!r}")
    return None
