"""Measured collectives in a CSV: `id, hardware, devices, nodes, collective, bytes, time_us, busbw_GBps, notes`.

Sizes and bus bandwidths are nccl-tests': for all-gather and reduce-scatter `bytes` is the whole gathered buffer. A size of
"large" is the one at which bandwidth grows no more. Columns beyond these are ignored.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshcast.errors import InputError
from meshcast.network.benchmark import known_kind

COLUMNS = ("id", "hardware", "devices", "collective", "bytes")
FIGURES = ("time_us", "busbw_GBps")
LARGE = 16 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One measurement."""

    id: str
    hardware: str
    devices: int | None
    nodes: int | None
    several_nodes: bool
    collective: str
    size: float | None
    time_us: float | None
    busbw: float | None  # GB/s
    notes: str = ""
    source: str = ""

    @property
    def kind(self) -> str | None:
        """The collective as a workload calls it; None for what is no collective."""
        return known_kind(re.split(r"[\s(]", self.collective.strip())[0])

    @property
    def mistuned(self) -> bool:
        """Whether its own source says that something was wrong."""
        return re.search(r"mis-?tuned|misconfigured", self.notes, re.IGNORECASE) is not None


def read_collective_rows(path: Path) -> list[CollectiveRow]:
    """The rows of a CSV.

    Raises:
        InputError: It cannot be read, is empty, lacks a column, or a number in it is none.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            header = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in COLUMNS if name not in header]
            if missing or not set(FIGURES) & set(header):
                lacks = ", ".join(missing) or " or ".join(FIGURES)
                raise InputError(
                    f"no column {lacks} (it has {', '.join(header) or 'nothing'})",
                    where=f"{path}:1",
                    fix=f"the columns are {', '.join((*COLUMNS, *FIGURES))}, and nodes, notes, source_url if known",
                )
            reader.fieldnames = header
            rows = [_row(cells, f"{path}:{reader.line_num}") for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    if not rows:
        raise InputError("has a header and no rows", where=str(path))
    return rows


def _row(cells: Mapping[str, str | None], where: str) -> CollectiveRow:
    text = {key: (value or "").strip() for key, value in cells.items() if key}
    nodes = text.get("nodes", "")
    several = nodes.lower().startswith("multi")
    devices = _number(text["devices"], "devices", where)
    return CollectiveRow(
        id=text["id"],
        hardware=text["hardware"],
        devices=None if devices is None else _whole(devices, "devices", where),
        nodes=None if several or not nodes else _whole(_number(nodes, "nodes", where) or 0.0, "nodes", where),
        several_nodes=several,
        collective=text["collective"],
        size=float(LARGE) if text["bytes"].lower() == "large" else _number(text["bytes"], "bytes", where),
        time_us=_number(text.get("time_us", ""), "time_us", where),
        busbw=_number(text.get("busbw_GBps", ""), "busbw_GBps", where),
        notes=text.get("notes", ""),
        source=text.get("source_url", ""),
    )


def _number(text: str, name: str, where: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise InputError(f"{name} is {text!r}, not a positive number", where=where)
    return value


def _whole(value: float, name: str, where: str) -> int:
    if value < 1 or not value.is_integer():
        raise InputError(f"{name} is {value:g}, not a positive whole number", where=where)
    return int(value)
