"""Published training runs in a CSV: hardware, a model's shape, a batch, a plan, and one figure that was measured.

A blank cell means that the source does not say. Columns beyond `COLUMNS` and `OPTIONAL` are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshcast.errors import InputError
from meshcast.validate.csv_rows import csv_rows

COLUMNS = ("id", "hardware", "devices", "model", "metric", "value")
SHAPE = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq")
DEGREES = ("dp", "fsdp", "tp", "sp", "pp", "vp", "ep", "cp")
_COUNTS = (*SHAPE, "gbs", "mbs")
OPTIONAL = ("source_url", "params_b", *_COUNTS, *DEGREES, "precision", "recompute", "other", "notes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run as its source tells it.

    Attributes:
        counts: The model's shape and the batches (`gbs`: sequences or samples a step, `mbs`: a microbatch's), where told.
        degrees: The parallel degrees, where told; 0 says that this kind was not used.
    """

    id: str
    hardware: str
    devices: int
    model: str
    metric: str
    value: float
    counts: Mapping[str, int] = field(default_factory=dict)
    degrees: Mapping[str, int] = field(default_factory=dict)
    parameters: float | None = None
    precision: str = ""
    recompute: str = ""
    other: str = ""
    notes: str = ""
    source: str = ""

    @property
    def words(self) -> str:
        """Everything said in words about how it ran, in lower case."""
        return " ".join((self.model, self.precision, self.recompute, self.other, self.notes)).lower()


def read_run_rows(path: Path) -> list[RunRow]:
    """The rows of a CSV.

    Raises:
        InputError: It cannot be read, is empty, lacks a column, or a number in it is none.
    """
    columns = f"the columns are {', '.join(COLUMNS)}, and of {', '.join(OPTIONAL)} what is known"
    return [_row(cells, f"{path}:{line}") for line, cells in csv_rows(path, COLUMNS, fix=columns)]


def _row(cells: Mapping[str, str | None], where: str) -> RunRow:
    text = {key: (value or "").strip() for key, value in cells.items() if isinstance(value, str | None) and key}
    if blank := [name for name in COLUMNS if not text[name]]:
        raise InputError(f"{', '.join(blank)} is blank", where=where, fix="a run needs at least these")
    parameters = text.get("params_b", "")
    return RunRow(
        id=text["id"],
        hardware=text["hardware"],
        devices=_whole(text["devices"], "devices", where, least=1),
        model=text["model"],
        metric=text["metric"],
        value=_number(text["value"], "value", where),
        counts={name: _whole(text[name], name, where, least=1) for name in _COUNTS if text.get(name)},
        degrees={name: _whole(text[name], name, where, least=0) for name in DEGREES if text.get(name)},
        parameters=_number(parameters, "params_b", where) * 1e9 if parameters else None,
        precision=text.get("precision", ""),
        recompute=text.get("recompute", ""),
        other=text.get("other", ""),
        notes=text.get("notes", ""),
        source=text.get("source_url", ""),
    )


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise InputError(f"{name} is {text!r}, not a positive number", where=where)
    return value


def _whole(text: str, name: str, where: str, *, least: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < least or not value.is_integer():
        raise InputError(f"{name} is {text!r}, not a whole number of at least {least}", where=where)
    return int(value)
