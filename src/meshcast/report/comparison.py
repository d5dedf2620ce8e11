"""A comparison's run folder as a section: step times over targets, devices and fidelities, and whether these agree."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from meshcast.base import InputError, json_value, unreadable
from meshcast.report.comparison_folder import COMPARED
from meshcast.report.summary import NO_MFU, Figure, figure
from meshcast.report.tables import Table, TableCell, column, table
from meshcast.results import within_peak

SCHEMA = "meshcast.comparison/1"
_TARGET, _STATUS = 0, 3  # columns that say nothing where there is one target, or everything was answered
# Of what is told of two fidelities: the column, its unit, and the word of the glossary.
_AGREEMENTS = {
    "cells": ("answers of both", "count", "count"), "ratio": ("ratio of times", "ratio", "fidelity_ratio"),
    "spread": ("spread", "ratio", "fidelity_spread"), "spearman": ("Spearman", "1", "rank_correlation"),
    "kendall": ("Kendall", "1", "rank_correlation"), "kendall_within_targets": ("within targets", "1", "rank_correlation"),
    "device_pairs": ("pairs of devices", "count", "device_pairs"),
}  # fmt: skip


class Answer(TypedDict):
    """A cell that has a time."""

    target: str
    on: str
    fidelity: str
    step_s: float
    interval: list[float]


class ComparisonSection(TypedDict):
    """The section."""

    headline: Figure
    verdict: str
    figures: list[Figure]
    answers: list[Answer]
    cells: Table
    agreements: Table | None
    command: str


def comparison_section(path: Path) -> ComparisonSection:
    """The section of a run folder.

    Raises:
        InputError: Its table is damaged, or none of ours.
    """
    file = path / COMPARED if path.is_dir() else path
    try:
        data = json_value(file.read_bytes(), where=str(file))
    except OSError as error:
        raise unreadable(file, error) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("table"), list):
        raise InputError(
            f"is no table of a comparison ({SCHEMA})",
            where=str(file),
            fix="name the folder that meshcast compare -o has written",
        )
    try:
        return _section(data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"is a damaged table of a comparison: {error!r}",
            where=str(file),
            fix="write it again: meshcast compare ... -o FOLDER",
        ) from None


def _section(data: Mapping[str, Any]) -> ComparisonSection:
    cells: list[Mapping[str, Any]] = data["table"]
    timed = [cell for cell in cells if cell["step_time_s"]]
    # A coarse fidelity is faster than a finer one by what it leaves out: the fastest is that of the finest of each.
    finest = [cell for cell in timed if cell.get("finest") in (None, cell["fidelity"])] or timed
    best = min(finest, key=lambda cell: float(cell["step_time_s"]), default=None)
    told = f"{best['target']} on {best['on']}, {best['fidelity']}" if best is not None else ""
    statuses = {name: count for name, count in data["statuses"].items() if count}
    return {
        "headline": figure("fastest step", best["step_time_s"] if best is not None else None, "s", "step_time"),
        "verdict": f"The fastest: {told}." if best is not None else "Nothing was answered.",
        "figures": [figure(name, count, "count", "count") for name, count in statuses.items()],
        "answers": [
            {
                "target": str(cell["target"]), "on": str(cell["on"]), "fidelity": str(cell["fidelity"]),
                "step_s": float(cell["step_time_s"]), "interval": list(cell["step_time_interval_s"] or []),
            }
            for cell in timed
        ],
        "cells": _cells(cells),
        "agreements": _agreements(data.get("agreements", [])),
        "command": shlex.join(map(str, data.get("command", []))),
    }  # fmt: skip


def _cells(cells: list[Mapping[str, Any]]) -> Table:
    rows: list[list[TableCell]] = []
    for cell in cells:
        found = cell["prediction"] or {}
        low, high = cell["step_time_interval_s"] or (None, None)
        memory = found.get("memory_bytes") or {}
        done = found.get("throughput") or {}
        mfu, reason = found.get("mfu"), cell.get("reason") or ""
        if mfu is not None and not within_peak(mfu):
            mfu, reason = None, reason or NO_MFU
        rows.append(
            [
                cell["target"], cell["on"], cell["fidelity"], cell["status"], cell["step_time_s"], low, high,
                cell.get("ratio_to_best"), mfu, memory.get("peak"), found.get("energy_j"), done.get("per_s"), reason,
            ]
        )  # fmt: skip
    columns = (
        column("target"), column("on"), column("fidelity"), column("status"), column("step", "s", "step_time"),
        column("low", "s", "interval"), column("high", "s", "interval"), column("to fastest", "ratio", "ratio_to_best"),
        column("MFU", "share", "mfu"), column("peak memory", "B", "peak_memory"), column("energy", "J", "energy"),
        column("throughput", _unit(cells), "throughput"), column("note"),
    )  # fmt: skip
    # A column in which nothing stands takes room from the others.
    filled = [place for place, _ in enumerate(columns) if any(row[place] not in (None, "") for row in rows)]
    if all(cell["status"] == "answered" for cell in cells):
        filled.remove(_STATUS)
    targets = {str(cell["target"]) for cell in cells}
    if len(targets) == 1:
        filled.remove(_TARGET)
    caption = f"All answers about {targets.pop()}" if len(targets) == 1 else "All answers"
    return table("cells", caption, [columns[each] for each in filled], [[row[each] for each in filled] for row in rows])


def _unit(cells: list[Mapping[str, Any]]) -> str:
    """What is got done a second, where all answers count the same; a plain count otherwise."""
    units = {str(((cell["prediction"] or {}).get("throughput") or {}).get("unit", "")) for cell in cells} - {""}
    return f"{units.pop()}/s" if len(units) == 1 else "count"


def _agreements(found: list[Mapping[str, Any]]) -> Table | None:
    """Pairs of fidelities, whatever a comparison says of them."""
    if not found:
        return None
    keys = [key for key, value in found[0].items() if isinstance(value, (str, int, float, bool)) or value is None]
    names = [
        key for key in found[0] if key not in keys and isinstance(found[0][key], list) and key in ("pair", "fidelities")
    ]
    rows = [
        [*(" and ".join(map(str, each[name])) for name in names), *(each.get(key) for key in keys)] for each in found
    ]
    told = [_AGREEMENTS.get(key, (key.replace("_", " "), "", "")) for key in keys]
    columns = [*(column(name) for name in names), *(column(*each) for each in told)]
    return table("agreements", "How the fidelities agree", columns, rows)
