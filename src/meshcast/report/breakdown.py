"""Where the step's time goes: by class of op, by loop over layers, by line of the program, kernel by kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypedDict

from meshcast.report.subject import Scene, Subject
from meshcast.report.tables import Table, TableCell, column, table
from meshcast.report.tally import Sums, tallied
from meshcast.report.work import Launches

MOST_LINES, MOST_KERNELS, MOST_LOOPS = 40, 60, 30


class StepPart(TypedDict):
    """A part of the step; all of them add up to it."""

    name: str
    label: str
    seconds: float


class SceneBreakdown(TypedDict):
    """The tables of one step."""

    name: str
    times: str
    step_s: float
    tables: list[Table]


class BreakdownSection(TypedDict):
    """The section."""

    parts: list[StepPart]
    scenes: list[SceneBreakdown]
    whole: Table | None


def breakdown(subject: Subject) -> BreakdownSection | None:
    """The section; None where there is no step."""
    found = subject.prediction.breakdown
    if found is None:
        return None
    names = ("compute", "memory", "exposed_communication", "overhead", "idle")
    parts: list[StepPart] = [{"name": n, "label": n.replace("_", " "), "seconds": getattr(found, n)} for n in names]
    scenes = [_scene(scene, _layers(subject)) for scene in subject.scenes]
    return {"parts": parts, "scenes": scenes, "whole": None if scenes else _whole(parts)}


def _whole(parts: list[StepPart]) -> Table:
    """The parts of the step as a table, for what has no kernels of ours to tell it by: a trace."""
    step = sum(each["seconds"] for each in parts)
    rows: list[list[TableCell]] = [
        [each["label"], each["seconds"], each["seconds"] / step if step else 0.0] for each in parts if each["seconds"]
    ]
    rows.sort(key=lambda row: -float(row[1] or 0.0))
    return table("step-parts", "By part of the step", (column("part"), *_TIME), rows)


def _layers(subject: Subject) -> int | None:
    """How many layers the model has, where that is known."""
    inputs = subject.prediction.inputs
    model = inputs.values.get("model") if inputs is not None else None
    return model.get("layers") if isinstance(model, Mapping) else None


def _scene(scene: Scene, layers: int | None) -> SceneBreakdown:
    step = scene.folded.step_s
    tables = [_classes(scene, step), _loops(scene, step, layers), _lines(scene, step), _kernels(scene, step)]
    return {"name": scene.name, "times": scene.times, "step_s": step, "tables": tables}


_TIME = (column("time", "s", "seconds"), column("of step", "share", "share"))
_WORK = (column("launches", "count", "count"), column("FLOPs", "FLOP", "flops"), column("memory traffic", "B", "bytes"))


def _classes(scene: Scene, step: float) -> Table:
    rows: list[list[TableCell]] = [
        [str(kind), found.seconds, _share(found, step), found.count, found.flops, found.bytes, found.sent or None]
        for kind, found in tallied(scene, lambda each: each.kind)
    ]
    rows += [[*row[:3], row[3], 0.0, 0.0, row[4]] for row in _between(scene, step)]
    rows.sort(key=lambda row: -float(row[1] or 0.0))
    return table(
        "classes", "By class of op", (column("class"), *_TIME, *_WORK, column("sent", "B", "bytes_sent")), rows,
        note="busy seconds of the average device: communication beside compute is counted in both",
    )  # fmt: skip


def _between(scene: Scene, step: float) -> Iterator[tuple[str, float, float, float, float]]:
    """Messages between stages and collectives behind the passes: name, seconds, share, count, bytes sent."""
    total = sum(ranks.ranks for ranks in scene.work)
    found: dict[str, list[float]] = {}
    for ranks in scene.work:
        share = ranks.ranks / total
        for sent in ranks.sent:
            row = found.setdefault("messages between stages", [0.0, 0.0, 0.0])
            payload = float(sent.message.collective.payload_bytes)
            for place, amount in enumerate((sent.message.seconds, 1.0, payload)):
                row[place] += share * sent.times * amount
        for end in ranks.ends:
            row = found.setdefault(end.label, [0.0, 0.0, 0.0])
            for place, amount in enumerate((end.seconds, 1.0, end.collective.sent_bytes)):
                row[place] += share * amount
    for name, (seconds, count, size) in found.items():
        yield name, seconds, seconds / step if step else 0.0, count, size


def _loops(scene: Scene, step: float, layers: int | None) -> Table:
    rows: list[list[TableCell]] = []
    for (label, loops), found in tallied(scene, lambda each: (each.label, each.loops)):
        turns = math.prod(trips for _, trips in loops) if loops else None
        where = " / ".join(f"{name} × {trips:,}" for name, trips in loops) or "outside of loops"
        if loops and loops[-1][1] == layers:
            where += ", a turn for each layer"
        told: list[TableCell] = [
            label,
            where,
            found.seconds,
            _share(found, step),
            turns,
            found.seconds / turns if turns else None,
        ]
        rows.append([*told, found.flops, found.bytes])
    if len(rows) == 1:  # no loop, and nothing to tell apart
        rows = []
    several = len({row[0] for row in rows}) > 1
    heads = [
        column("pass"),
        column("loop"),
        *_TIME,
        column("turns", "count", "count"),
        column("a turn", "s", "per_turn"),
    ]
    made = table(
        "loops", "By layer", (*heads, *_WORK[1:]), rows, most=MOST_LOOPS,
        note="a loop over layers has a turn for each; a pass of a pipeline runs once for each microbatch; communication beside "
        "compute is counted in both",
    )  # fmt: skip
    if not several:  # one program: its name would stand in every row
        made["columns"] = made["columns"][1:]
        made["rows"] = [row[1:] for row in made["rows"]]
    return made


def _lines(scene: Scene, step: float) -> Table:
    def key(each: Launches) -> tuple[str, str]:
        return ("communication" if each.kernel.collective is not None else "compute", scene.line(each.kernel.location))

    rows: list[list[TableCell]] = []
    for (kind, line), found in tallied(scene, key):
        what = found.first.name if found.first is not None else ""
        rows.append(
            [line or "not said", kind, what, found.seconds, _share(found, step), found.count, found.sent or None]
        )
    known = "" if scene.lines else "the program has no debug locations with lines: ops are told by their names"
    columns = (
        column("source", "", "source"), column("kind"), column("longest"), *_TIME, _WORK[0], column("sent", "B", "bytes_sent"),
    )  # fmt: skip
    return table("lines", "By source line", columns, rows, most=MOST_LINES, note=known)


def _kernels(scene: Scene, step: float) -> Table:
    def key(each: Launches) -> tuple[object, ...]:
        return (each.name, each.kernel.cost_key, each.kernel.location)

    rows: list[list[TableCell]] = []
    for _, found in tallied(scene, key):
        if (each := found.first) is None:
            continue
        bound, origin = "communication", str(each.run.network_model.origin)
        if each.kernel.collective is None:
            estimate = each.run.kernels[each.kernel]
            bound, origin = estimate.limited_by, estimate.origin.value
        rows.append(
            [
                each.name, found.seconds, _share(found, step), found.count, found.seconds / found.count if found.count else None,
                bound, origin, scene.line(each.kernel.location),
            ]
        )  # fmt: skip
    columns = (
        column("kernel"), *_TIME, _WORK[0], column("each", "s", "seconds"), column("limited by", "", "limited_by"),
        column("origin", "", "origin"), column("source", "", "source"),
    )  # fmt: skip
    return table("kernels", "Longest kernels and collectives", columns, rows, most=MOST_KERNELS)


def _share(found: Sums, step: float) -> float:
    return found.seconds / step if step else 0.0
