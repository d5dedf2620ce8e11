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
from meshcast.explore import Accounts, Outcome, Point, read_points
from meshcast.report.summary import NO_MFU, Figure, figure
from meshcast.report.tables import Table, TableCell, TableColumn, column, table
from meshcast.results import within_peak

POINTS, SUMMARY, SPACE, ENVIRONMENT = "points.jsonl", "summary.json", "space.toml", "environment.json"
MOST_POINTS = 4_000
# No axes: what follows from others, and what is the same for all that run.
APART = ("binds", "status", "device", "days", "energy_kwh", "carbon_kg")
NAMING = ("plan", "target", "on", "stack")  # what tells points apart at a glance, where it varies
NAME = "point"  # a plan with all else that varies, where more than `NAMING` does
# What is known of a point, in the order in which it is told: unit, glossary's word, title, and whether less is better.
MEASURES: dict[str, tuple[str, str, str, bool]] = {
    "step_time_s": ("s", "step_time", "step time", True),
    "units_per_s": ("units/s", "throughput", "throughput", False),
    "mfu": ("share", "mfu", "MFU", False),
    "memory_share": ("share", "memory_share", "memory of capacity", True),
    "energy_j": ("J", "energy_all", "energy of a step", True),
    "unit_j": ("J", "energy_per_unit", "energy of a unit", True),
    "watts": ("W", "power", "power of all devices", True),
    "devices": ("count", "devices", "devices", True),
    "usd_per_million": ("USD", "usd_per_million", "USD for a million", True),
    "days": ("days", "whole_run", "days of the run", True),
    "cost_usd": ("USD", "whole_run", "price of the run", True),
    "energy_kwh": ("kWh", "whole_run", "energy of the run", True),
    "carbon_kg": ("kg", "whole_run", "carbon of the run", True),
}
# What an objective is told by, the first that is known.
TOLD_BY = {
    "time": ("step_time_s",), "throughput": ("units_per_s",), "energy": ("unit_j",), "memory": ("memory_share",),
    "cost": ("cost_usd", "usd_per_million"), "devices": ("devices",),
}  # fmt: skip


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
    again: list[int]  # columns that say what the first ones do: parts of the name, the device of a cluster
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
    try:
        return _section(folder, summary)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fix = f"have it written again: meshcast explore {SPACE} -o {folder} --resume"
        raise InputError(f"is no summary of a search: {error!r}", where=str(folder / SUMMARY), fix=fix) from None


def _section(folder: Path, summary: Mapping[str, Any]) -> ExplorationSection:
    best = [int(found["number"]) for found in summary.get("best", [])]
    front = [int(found["number"]) for found in summary.get("pareto", [])]
    kept = _kept(folder, {*best, *front}, Accounts.from_json(summary.get("accounts", {})))
    if not kept.rows:
        raise InputError("no point is finished", where=str(folder), fix="run meshcast explore ... --resume")
    for found in (*summary.get("pareto", []), *summary.get("best", [])):  # earlier folders price no others
        row = kept.rows.get(found["number"], {})
        row.update({name: value for name, value in found.items() if name in MEASURES and name not in row})
    objectives = [str(name) for name in summary.get("objectives", [])]
    points = _points(kept, objectives, front, best)
    first = kept.rows.get(best[0]) if best else kept.fastest
    return {
        "headline": _headline(first, objectives),
        "verdict": _verdict(first, points, objectives) if first else "No point runs.",
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


def _measured(row: Mapping[str, Any], objectives: Sequence[str]) -> list[str]:
    """What the objectives are told by, of what is known of a point."""
    told = (next((name for name in TOLD_BY.get(each, ()) if _number(row.get(name))), None) for each in objectives)
    return [name for name in told if name is not None]


def _headline(first: Mapping[str, Any] | None, objectives: Sequence[str]) -> Figure:
    """What the best point has of the first objective, which decides what is best."""
    name = next(iter(_measured(first or {}, objectives[:1])), "step_time_s")
    made = _column(name, str((first or {}).get("unit") or "units"))
    label = f"{made['title']}, the best point's" if " of " in made["title"] else f"{made['title']} of the best"
    return figure(label, first.get(name) if first else None, made["unit"], made["term"])


def _verdict(first: Mapping[str, Any], points: Points, objectives: Sequence[str]) -> str:
    """Which point is the best and for what; of several objectives also how many points their front has."""
    place = next(at for at, each in enumerate(points["columns"]) if each["title"] == "number")
    row = next((row for row in points["rows"] if row[place] == first["number"]), None)
    name = str(row[0]) if row is not None and points["columns"][0]["title"] == NAME else str(first.get("plan") or "")
    on = f" on {first['on']}" if first.get("on") else ""
    said = f"Best for {objectives[0] if objectives else 'step time'}: {first['target']} {name}".strip() + f"{on}."
    if len(objectives) > 1 and (count := len(points["front"])) > 1:
        said += f" {count} points are on the front of {' and '.join(objectives)}."
    return said


@dataclass(slots=True, kw_only=True)
class _KeptPoints:
    """The points of a folder that a page can hold, by their numbers; and what all of them are."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    status: Counter[str] = field(default_factory=Counter)
    fastest: dict[str, Any] | None = None
    count: int = 0
    every: int = 1
    above_peak: int = 0


def _row(point: Point, outcome: Outcome, accounts: Accounts) -> dict[str, Any]:
    """A point with what it costs, and joules of a token, image or sample."""
    done = (outcome.units_per_s or 0.0) * (outcome.step_time_s or 0.0)
    energy = {"unit_j": outcome.energy_j / done} if outcome.energy_j is not None and done else {}
    return {"number": point.number, **point.columns(), **outcome.columns(), **accounts.told(outcome), **energy}


def _kept(folder: Path, always: set[int], accounts: Accounts) -> _KeptPoints:
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
        row = _row(point, outcome, accounts)
        if outcome.mfu is not None and not within_peak(outcome.mfu):
            row["mfu"] = None
            kept.above_peak += 1
        kept.fastest = row if faster else kept.fastest
        if place % kept.every == 0 or point.number in always:
            kept.rows[point.number] = row
    return kept


def _points(found: _KeptPoints, objectives: list[str], front: list[int], best: list[int]) -> Points:
    kept = [found.rows[number] for number in sorted(found.rows)]
    note = f"{len(kept):,} of {found.count:,} points are shown: the best, the front, and every {found.every}th"
    names = [name for name in dict.fromkeys(key for row in kept for key in row)]
    measures = [
        name for name in MEASURES
        if (name != "unit_j" or "energy" in objectives) and len({row[name] for row in kept if _number(row.get(name))}) > 1
    ]  # fmt: skip
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
    # What a point is called, then what was searched for and what else was found of it; what was asked for is behind.
    naming = [name for name in NAMING if name in varied]
    others = [name for name in varied if name not in (*NAMING, *APART, "devices")]
    parts: list[str] = []
    if others or not naming:
        parts = [*(["plan"] if "plan" in naming else []), *others]
        for row in kept:
            row[NAME] = _named(row, parts)
        naming = [NAME, *(name for name in naming if name != "plan")]
    wanted = list(dict.fromkeys(name for row in kept for name in _measured(row, objectives) if name in measures))
    measures = [*wanted, *(name for name in measures if name not in wanted)]
    shown = [*naming, *measures, *(name for name in varied if name not in naming), "number"]
    counted = next((str(row["unit"]) for row in kept if row.get("unit")), "units")
    columns = [_column(name, counted) for name in shown]
    place = {row["number"]: at for at, row in enumerate(kept)}
    usual = ("step_time_s", "memory_share", "energy_j", "devices")
    two = [name for name in dict.fromkeys((*wanted, *usual)) if name in measures]
    return {
        "columns": columns,
        "rows": [[_cell(row.get(name)) for name in shown] for row in kept],
        "measures": [{"place": shown.index(n), "title": MEASURES[n][2], "less": MEASURES[n][3]} for n in measures],
        "axes": [shown.index(name) for name in (*varied, *measures) if name not in APART and _known(kept, name)],
        "again": [shown.index(n) for n in (*parts, *(["device"] if "on" in naming else [])) if n in shown],
        "front": [place[number] for number in front if number in place],
        "best": [place[number] for number in best if number in place],
        "number": shown.index("number"),
        "x": shown.index(two[0]) if two else 0,
        "y": shown.index(two[1]) if len(two) > 1 else (shown.index(two[0]) if two else 0),
        "note": "; ".join(
            said for said, holds in ((note, found.every > 1), (f"MFU: {NO_MFU}", found.above_peak)) if holds
        ),
    }


def _named(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """A point by the values that vary: `fsdp=16,mbs=4, batch=64`."""
    told = ((name.rpartition(".")[2], row.get(name)) for name in names)
    said = [str(value) if name == "plan" else f"{name}={_cell(value)}" for name, value in told if value is not None]
    return ", ".join(said) or f"number {row['number']}"


def _column(name: str, counted: str) -> TableColumn:
    if name in MEASURES:
        unit, term, title, _ = MEASURES[name]
        one = counted.removesuffix("s")
        return column(title.replace("of a unit", f"of a {one}"), unit.replace("units", counted), term)
    if name == NAME:
        return column(NAME, "", "point")
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
    told = [place for place, _ in enumerate(points["columns"]) if place not in points["again"]]
    return table(name, caption, [points["columns"][at] for at in told], [[row[at] for at in told] for row in rows])


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
