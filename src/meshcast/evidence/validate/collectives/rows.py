"""Measured collectives in a CSV: `id, hardware, devices, nodes, collective, bytes, time_us, busbw_GBps, notes`.

Sizes and bus bandwidths are nccl-tests': for all-gather and reduce-scatter `bytes` is the whole gathered buffer. A size of
"large" is the one at which bandwidth grows no more; others are numbers of bytes, "64MiB", or "64M" as nccl-tests writes it.
Columns beyond these are ignored. A cell that says nothing sensible fails its own row, not the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import MeshcastError
from meshcast.evidence.validate.csv_rows import csv_rows
from meshcast.network import known_kind, parse_sizes

COLUMNS = ("id", "hardware", "devices", "collective", "bytes")
FIGURES = ("time_us", "busbw_GBps")
LARGE = 16 * 2**30
# What microbenchmarks list beside collectives and is none; any other name is that of a collective that we do not have.
_NO_COLLECTIVE = re.compile(
    r"\b(?:mat ?mul|gemm|conv\w*|copy|memcpy|stream|add|attention|softmax|flops?)\b", re.IGNORECASE
)
_NOT_SAID = ("", "-", "n/a", "na", "none", "?")


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
    wrong: str = ""  # what its cells say that cannot be

    @property
    def kind(self) -> str | None:
        """The collective as a workload calls it; None where we have no such collective."""
        name = re.sub(r"(?i)[_ -]?(?:perf|ici|dcn)$", "", self.collective.split("(")[0].strip())
        return known_kind(name) or known_kind(name.split(" ")[0])

    @property
    def no_collective(self) -> bool:
        """Whether something else was measured, as microbenchmarks do."""
        return self.kind is None and _NO_COLLECTIVE.search(self.collective) is not None

    @property
    def mistuned(self) -> bool:
        """Whether the row's own source calls the measurement mis-tuned."""
        return re.search(r"mis-?tuned|misconfigured", self.notes, re.IGNORECASE) is not None


def read_collective_rows(path: Path) -> list[CollectiveRow]:
    """The rows of a CSV.

    Raises:
        InputError: It cannot be read, is empty, or lacks a column.
    """
    columns = f"the columns are {', '.join((*COLUMNS, *FIGURES))}, and nodes, notes, source_url if known"
    found = csv_rows(path, COLUMNS, one_of=FIGURES, fix=columns)
    return [_row(cells, f"{path}:{line}") for line, cells in found]


def _row(cells: Mapping[str, str | None], where: str) -> CollectiveRow:
    text = {key: (value or "").strip() for key, value in cells.items() if key}
    nodes = text.get("nodes", "")
    several = nodes.lower().startswith("multi")
    wrong: list[str] = []
    return CollectiveRow(
        id=text["id"] or where,
        hardware=text["hardware"],
        devices=_whole(text["devices"], "devices", wrong),
        nodes=None if several else _whole(nodes, "nodes", wrong),
        several_nodes=several,
        collective=text["collective"],
        size=_size(text["bytes"], wrong),
        time_us=_number(text.get("time_us", ""), "time_us", wrong),
        busbw=_number(text.get("busbw_GBps", ""), "busbw_GBps", wrong),
        notes=text.get("notes", ""),
        source=text.get("source_url", ""),
        wrong="; ".join(wrong),
    )


def _number(text: str, name: str, wrong: list[str]) -> float | None:
    if text.lower() in _NOT_SAID:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = -1.0
    if 0 < value < float("inf"):
        return value
    wrong.append(f"{name} is {text!r}, not a positive number")
    return None


def _whole(text: str, name: str, wrong: list[str]) -> int | None:
    value = _number(text, name, wrong)
    if value is None or value.is_integer():
        return None if value is None else int(value)
    wrong.append(f"{name} is {text!r}, not a positive whole number")
    return None


def _size(text: str, wrong: list[str]) -> float | None:
    if text.lower() in ("large", *_NOT_SAID):
        return float(LARGE) if text.lower() == "large" else None
    said = re.fullmatch(r"([\d.,]+(?:e\+?\d+)?) ?([A-Za-z]+)?", text, re.IGNORECASE)
    if said is None or not said[2]:
        value = _number(text, "bytes", wrong)
        if value is not None and value < 1:
            wrong.append(f"bytes is {text!r}, less than one")
        return value
    unit = said[2]
    if unit.upper() in ("K", "M", "G", "T"):  # nccl-tests' -b 8M
        unit = f"{unit.upper()}iB"
    try:
        return float(parse_sizes(f"{said[1].replace(',', '')}{unit}", "bytes", several=False)[0])
    except MeshcastError as error:
        wrong.append(f"bytes is {text!r}: {error.message}")
        return None
