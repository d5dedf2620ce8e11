"""A search's run folder as a section: the points, the front among them, parallel coordinates, and a table to filter."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypedDict

from meshcast.base import InputError, json_value, unreadable
from meshcast.explore import read_points
from meshcast.report.summary import Figure, figure
from meshcast.report.tables import Table, TableCell, TableColumn, column, table

POINTS, SUMMARY, SPACE, ENVIRONMENT = "points.jsonl", "summary.json", "space.toml", "environment.json"
MOST_POINTS = 4_000
APART = ("binds", "status", "device")  # no axes: what follows from others, and what is the same for all that run
NAMING = ("plan", "target", "on", "stack")  # what tells points apart at a glance, where it varies
# What is known of a point, in the order in which it is told: unit, glossary's word, title, and whether less is better.
MEASURES: dict[str, tuple[str, str, str, bool]] = {
    "step_time_s": ("s", "step_time", "step time", True),
    "units_per_s": ("units/s", "throughput", "throughput", False),
    "mfu": ("share", "mfu", "MFU", False),
    "memory_share": ("share", "memory_share", "memory of capacity", True),
    "energy_j": ("J", "energy_all", "energy of a step", True),
    "watts": ("W", "power", "power of all devices", True),
    "devices": ("count", "devices", "devices", True),
    "usd_per_million": ("USD", "usd_per_million", "USD for a million", True),
    "days": ("days", "whole_run", "days of the run", True),
    "cost_usd": ("USD", "whole_run", "price of the run", True),
    "energy_kwh": ("kWh", "whole_run", "energy of the run", True),
    "carbon_kg": ("kg", "whole_run", "carbon of the run", True),
}


class Measure(TypedDict):
    """A column of numbers that can be an axis."""

    place: int
    title: str
    less: bool


class Points(TypedDict):
    """All points: those of the front and the best are named by their rows."""

    columns: list[TableColumn]
    rows: list[list[TableCell]]
    measures: list[Measure]
    axes: list[int]
    front: list[int]
    best: list[int]
    number: int
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
    """Whether a folder is a search's.

    Raises:
        InputError: It is, and has no point yet.
    """
    begun = (folder / SPACE).is_file() and (folder / ENVIRONMENT).is_file()
    if begun and not (folder / POINTS).is_file():
        fix = f"go on with it: meshcast explore SPACE.toml -o {folder} --resume"
        raise InputError("is of a search that was ended before its first point", where=str(folder), fix=fix)
    return (folder / POINTS).is_file() and (folder / ENVIRONMENT).is_file()


def exploration_section(folder: Path) -> ExplorationSection:
    """The section of a run folder.

    Raises:
        InputError: It has no finished points, or a file of it is damaged.
    """
    summary = _json(folder / SUMMARY) if (folder / SUMMARY).is_file() else {}
    best = [int(found["number"]) for found in summary.get("best", [])]
    front = [int(found["number"]) for found in summary.get("pareto", [])]
    kept = _kept(folder, {*best, *front})
    if not kept.rows:
        raise InputError("no point is finished", where=str(folder), fix="run meshcast explore ... --resume")
    for found in summary.get("pareto", []):  # what a whole run costs is known of these alone
        row = kept.rows.get(found["number"], {})
        row.update({name: value for name, value in found.items() if name not in row})
    objectives = [str(name) for name in summary.get("objectives", [])]
    points = _points(kept, objectives, front, best)
    first = kept.rows.get(best[0]) if best else kept.fastest
    asked = f"{first['target']} {first.get('plan') or ''}".strip() if first else ""
    return {
        "headline": figure("step time of the best", first["step_time_s"] if first else None, "s", "step_time"),
        "verdict": f"Best for {', '.join(objectives) or 'step time'}: {asked}." if first else "No point runs.",
        "figures": [
            figure("points of the space", summary.get("space"), "count", "objective"),
            figure("predicted", summary.get("evaluated", kept.count), "count", "objective"),
            figure("left out by bounds", summary.get("left_out"), "count", "objective"),
            *(figure(name, count, "count", "objective") for name, count in kept.status.items() if name != "answered"),
        ],
        "best": _table(points, best, "best", "Best points"),
        "points": points,
        "sensitivity": _sensitivity(summary.get("sensitivity", [])),
        "space": (folder / SPACE).read_text(encoding="utf-8", errors="replace") if (folder / SPACE).is_file() else "",
        "command": shlex.join(_command(folder)),
    }


@dataclass(slots=True, kw_only=True)
class _KeptPoints:
    """The points of a folder that a page can hold, by their numbers; and what all of them are."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    status: Counter[str] = field(default_factory=Counter)
    fastest: dict[str, Any] | None = None
    count: int = 0
    every: int = 1


def _kept(folder: Path, always: set[int]) -> _KeptPoints:
    """Points as they are read: the best and the front, and of the others every so many."""
    with (folder / POINTS).open("rb") as lines:
        kept = _KeptPoints(every=max(1, -(-sum(1 for _ in lines) // MOST_POINTS)))
    for place, (point, outcome) in enumerate(read_points(folder)):
        kept.count += 1
        kept.status[outcome.status] += 1
        step = outcome.step_time_s
        faster = step is not None and (kept.fastest is None or step < kept.fastest["step_time_s"])
        if not faster and place % kept.every and point.number not in always:
            continue
        row = {"number": point.number, **point.columns(), **outcome.columns()}
        kept.fastest = row if faster else kept.fastest
        if place % kept.every == 0 or point.number in always:
            kept.rows[point.number] = row
    return kept


def _points(found: _KeptPoints, objectives: list[str], front: list[int], best: list[int]) -> Points:
    kept = [found.rows[number] for number in sorted(found.rows)]
    note = f"{len(kept):,} of {found.count:,} points are shown: the best, the front, and every {found.every}th"
    names = [name for name in dict.fromkeys(key for row in kept for key in row)]
    measures = [name for name in MEASURES if len({row.get(name) for row in kept if _number(row.get(name))}) > 1]
    hidden = {
        *MEASURES,
        "error",
        "code",
        "seconds",
        "breakdown_s",
        "capacity_bytes",
        "memory_bytes",
        "fidelity",
        "unit",
    }
    hidden |= {name for name in names if name.endswith("_s") or name.startswith("objective.")}
    varied = [
        name for name in names
        if name not in hidden and name != "number" and len({json.dumps(row.get(name), default=str) for row in kept}) > 1
    ]  # fmt: skip
    # What a point is called, then what was found of it; what else was asked for is part of its name, or behind.
    naming = [name for name in NAMING if name in varied]
    shown = [*naming, *measures, *(name for name in varied if name not in naming), "number"]
    counted = next((str(row["unit"]) for row in kept if row.get("unit")), "units")
    columns = [_column(name, counted) for name in shown]
    place = {row["number"]: at for at, row in enumerate(kept)}
    by_objective = {"time": "step_time_s", "throughput": "units_per_s", "energy": "energy_j", "memory": "memory_share"}
    wanted = [by_objective.get(name, name) for name in objectives]
    usual = ("step_time_s", "memory_share", "energy_j", "devices")
    two = [name for name in dict.fromkeys((*wanted, *usual)) if name in measures]
    return {
        "columns": columns,
        "rows": [[_cell(row.get(name)) for name in shown] for row in kept],
        "measures": [{"place": shown.index(n), "title": MEASURES[n][2], "less": MEASURES[n][3]} for n in measures],
        "axes": [shown.index(name) for name in (*varied, *measures) if name not in APART and _known(kept, name)],
        "front": [place[number] for number in front if number in place],
        "best": [place[number] for number in best if number in place],
        "number": shown.index("number"),
        "x": shown.index(two[0]) if two else 0,
        "y": shown.index(two[1]) if len(two) > 1 else (shown.index(two[0]) if two else 0),
        "note": note if found.every > 1 else "",
    }


def _column(name: str, counted: str) -> TableColumn:
    if name in MEASURES:
        unit, term, title, _ = MEASURES[name]
        return column(title, unit.replace("units", counted), term)
    return column("number", "count", "point") if name == "number" else column(name.removeprefix("set."), "", "setting")


def _known(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether most of the points that run have it: what a whole run takes is worked out for the front alone."""
    timed = [row for row in rows if row.get("step_time_s") is not None]
    return sum(row.get(name) is not None for row in timed) > len(timed) / 2


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: Any) -> TableCell:
    return value if value is None or isinstance(value, (str, int, float, bool)) else json.dumps(value, default=str)


def _table(points: Points, best: Sequence[int], name: str, caption: str) -> Table:
    rows = [row for number in best for row in points["rows"] if row[points["number"]] == number]
    return table(name, caption, points["columns"], rows)


def _sensitivity(found: Sequence[Mapping[str, Any]]) -> Table | None:
    if not found:
        return None
    keys = [key for key, value in found[0].items() if isinstance(value, (str, int, float)) or value is None]
    columns = [
        column(key.replace("_", " "), "s" if key.endswith("_s") else "share" if "share" in key else "", "sensitivity")
        for key in keys
    ]
    return table(
        "sensitivity", "Numbers of the best point's hardware, each a tenth better", columns,
        ([row.get(key) for key in keys] for row in found),
    )  # fmt: skip


def _command(folder: Path) -> list[str]:
    found = _json(folder / ENVIRONMENT).get("command", [])
    words = [str(word) for word in found] if isinstance(found, list) else str(found).split()
    return [PurePath(words[0]).name, *words[1:]] if words else []


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json_value(path.read_bytes(), where=str(path))
    except OSError as error:
        raise unreadable(path, error) from None
    if not isinstance(found, dict):
        raise InputError("is no object", where=str(path), fix="have the folder written again: meshcast explore")
    return found
