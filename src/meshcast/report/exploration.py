"""A search's run folder as a section: the points, the front among them, parallel coordinates, and a table to filter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from meshcast.base import InputError, json_value
from meshcast.explore import read_points
from meshcast.report.summary import Figure, figure
from meshcast.report.tables import Cell, Column, Table, column, table

POINTS, SUMMARY, SPACE, ENVIRONMENT = "points.jsonl", "summary.json", "space.toml", "environment.json"
MOST_POINTS = 4_000
# What is known of a point, in the order in which it is told: unit, glossary's word, title, and whether less is better.
MEASURES: dict[str, tuple[str, str, str, bool]] = {
    "step_time_s": ("s", "step_time", "step time", True),
    "units_per_s": ("count", "throughput", "throughput a second", False),
    "mfu": ("share", "mfu", "MFU", False),
    "memory_share": ("share", "memory_share", "memory of capacity", True),
    "energy_j": ("J", "energy_all", "energy of a step", True),
    "watts": ("W", "power", "power of all devices", True),
    "devices": ("count", "devices", "devices", True),
    "usd_per_million": ("USD", "usd_per_million", "USD for a million", True),
}


class Measure(TypedDict):
    """A column of numbers that can be an axis."""

    place: int
    title: str
    less: bool


class Points(TypedDict):
    """All points: those of the front and the best are named by their rows."""

    columns: list[Column]
    rows: list[list[Cell]]
    measures: list[Measure]
    axes: list[int]
    front: list[int]
    best: list[int]
    x: int
    y: int
    note: str


class ExplorationSection(TypedDict):
    """The section."""

    headline: Figure
    verdict: str
    figures: list[Figure]
    best: Table
    points: Points
    sensitivity: Table | None
    space: str
    command: str


def is_exploration(folder: Path) -> bool:
    """Whether a folder is a search's."""
    return (folder / POINTS).is_file() and (folder / ENVIRONMENT).is_file()


def exploration_section(folder: Path) -> ExplorationSection:
    """The section of a run folder.

    Raises:
        InputError: It has no finished points, or a file of it is damaged.
    """
    summary = _json(folder / SUMMARY) if (folder / SUMMARY).is_file() else {}
    rows: list[dict[str, Any]] = []
    for point, outcome in read_points(folder):
        rows.append({"number": point.number, **point.columns(), **outcome.columns()})
    rows = list({row["number"]: row for row in rows}.values())
    if not rows:
        raise InputError("no point is finished", where=str(folder), fix="run meshcast explore ... --resume")
    objectives = [str(name) for name in summary.get("objectives", [])]
    for found in summary.get("pareto", []):  # what a whole run costs is known of these alone
        for row in rows:
            if row["number"] == found["number"]:
                row.update({name: value for name, value in found.items() if name not in row})
    best = [int(found["number"]) for found in summary.get("best", [])]
    front = [int(found["number"]) for found in summary.get("pareto", [])]
    points = _points(rows, objectives, front, best)
    return {
        **_said(rows, summary, best, objectives),
        "best": _table(points, best, "best", "Best points"),
        "points": points,
        "sensitivity": _sensitivity(summary.get("sensitivity", [])),
        "space": (folder / SPACE).read_text(encoding="utf-8", errors="replace") if (folder / SPACE).is_file() else "",
        "command": " ".join(_command(folder)),
    }  # type: ignore[typeddict-item]  # the keys of `_said`


def _said(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], best: Sequence[int], objectives: Sequence[str]
) -> dict[str, Any]:
    answered = [row for row in rows if row["step_time_s"] is not None]
    first = next((row for row in rows if best and row["number"] == best[0]), None)
    if first is None and answered:
        first = min(answered, key=lambda row: float(row["step_time_s"]))
    headline = figure("step time of the best", first["step_time_s"] if first else None, "s", "step_time")
    what = ", ".join(objectives) or "step time"
    asked = f"{first['target']} {first.get('plan') or ''}".strip() if first else ""
    status = {name: sum(row["status"] == name for row in rows) for name in ("infeasible", "unsupported", "failed")}
    return {
        "headline": headline,
        "verdict": f"Best for {what}: {asked}." if first else "No point runs.",
        "figures": [
            figure("points of the space", summary.get("space"), "count", "objective"),
            figure("predicted", summary.get("evaluated", len(rows)), "count", "objective"),
            figure("left out by bounds", summary.get("left_out"), "count", "objective"),
            *(figure(name, count, "count", "objective") for name, count in status.items() if count),
        ],
    }


def _points(rows: list[dict[str, Any]], objectives: list[str], front: list[int], best: list[int]) -> Points:
    kept, note = _bounded(rows, {*front, *best})
    names = [name for name in dict.fromkeys(key for row in kept for key in row)]
    measures = [name for name in MEASURES if name in names and any(_number(row.get(name)) for row in kept)]
    hidden = {*MEASURES, "error", "code", "seconds", "breakdown_s", "capacity_bytes", "memory_bytes", "fidelity", "unit"}
    hidden |= {name for name in names if name.endswith("_s") or name.startswith("objective.")}
    varied = [
        name for name in names
        if name not in hidden and name != "number" and len({json.dumps(row.get(name), default=str) for row in kept}) > 1
    ]  # fmt: skip
    shown = ["number", *varied, *measures]
    columns = [_column(name) for name in shown]
    place = {row["number"]: at for at, row in enumerate(kept)}
    two = [name for name in ("step_time_s", "memory_share", "energy_j", "devices") if name in measures]
    by_objective = {"time": "step_time_s", "throughput": "units_per_s", "energy": "energy_j", "memory": "memory_share"}
    wanted = [by_objective.get(name, name) for name in objectives]
    two = [name for name in dict.fromkeys([*wanted, *two]) if name in measures]
    return {
        "columns": columns,
        "rows": [[_cell(row.get(name)) for name in shown] for row in kept],
        "measures": [{"place": shown.index(n), "title": MEASURES[n][2], "less": MEASURES[n][3]} for n in measures],
        "axes": [shown.index(name) for name in (*varied, *measures) if name not in ("binds",)],
        "front": [place[number] for number in front if number in place],
        "best": [place[number] for number in best if number in place],
        "x": shown.index(two[0]) if two else 0,
        "y": shown.index(two[1]) if len(two) > 1 else (shown.index(two[0]) if two else 0),
        "note": note,
    }


def _bounded(rows: list[dict[str, Any]], always: set[int]) -> tuple[list[dict[str, Any]], str]:
    """As many points as a page can hold: the best and the front, and of the others evenly."""
    rows = sorted(rows, key=lambda row: int(row["number"]))
    if len(rows) <= MOST_POINTS:
        return rows, ""
    step = len(rows) / MOST_POINTS
    even = {int(place * step) for place in range(MOST_POINTS)}
    kept = [row for at, row in enumerate(rows) if at in even or row["number"] in always]
    return kept, f"{len(kept):,} of {len(rows):,} points are shown: the best, the front, and of the others every so many"


def _column(name: str) -> Column:
    if name in MEASURES:
        unit, term, title, _ = MEASURES[name]
        return column(title, unit, term)
    return column(name.removeprefix("set."), "count" if name == "number" else "")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> Cell:
    return value if value is None or isinstance(value, (str, int, float, bool)) else json.dumps(value, default=str)


def _table(points: Points, best: Sequence[int], name: str, caption: str) -> Table:
    rows = [row for number in best for row in points["rows"] if row[0] == number]
    return table(name, caption, points["columns"], rows)


def _sensitivity(found: Sequence[Mapping[str, Any]]) -> Table | None:
    if not found:
        return None
    keys = [key for key, value in found[0].items() if isinstance(value, (str, int, float)) or value is None]
    columns = [column(key.replace("_", " "), "s" if key.endswith("_s") else "share" if "share" in key else "") for key in keys]
    return table(
        "sensitivity", "Numbers of the best point's hardware, each a tenth better", columns, ([row.get(k) for k in keys] for row in found)
    )  # fmt: skip


def _command(folder: Path) -> list[str]:
    found = _json(folder / ENVIRONMENT).get("command", [])
    return [str(word) for word in found] if isinstance(found, list) else [str(found)]


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json_value(path.read_bytes(), where=str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if not isinstance(found, dict):
        raise InputError("is no object", where=str(path))
    return found
