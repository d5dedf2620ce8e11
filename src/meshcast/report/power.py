"""Power and energy: what a step takes, what draws it, and power over time below the cap."""

from __future__ import annotations

from typing import TypedDict

from meshcast.estimate import idle_watts
from meshcast.report.levels import Series, series
from meshcast.report.subject import Scene, Subject
from meshcast.report.tables import Table, column, table
from meshcast.report.tally import tallied
from meshcast.traces import use_levels


class ScenePower(TypedDict):
    """Power of one device over a step."""

    name: str
    rank: str
    end_s: float
    series: Series


class PowerSection(TypedDict):
    """The section."""

    energy_j: float
    all_j: float
    average_w: float
    cap_w: float
    idle_w: float
    per_unit_j: float | None
    unit: str
    scenes: list[ScenePower]
    classes: list[Table]


def power_section(subject: Subject) -> PowerSection | None:
    """The section; None where the energy is not known."""
    prediction = subject.prediction
    if prediction.timed is None or prediction.energy_j is None or not prediction.step_time_s:
        return None
    device, done = subject.cluster.device, prediction.throughput
    total = prediction.energy_j * prediction.devices
    # Of whole requests the energy of their decoding steps alone is known: not that of a token.
    per_unit = total / done.units if done is not None and prediction.serving is None else None
    return {
        "energy_j": prediction.energy_j,
        "all_j": total,
        "average_w": prediction.energy_j / prediction.step_time_s,
        "cap_w": device.tdp_watts,
        "idle_w": idle_watts(device),
        "per_unit_j": per_unit,
        "unit": done.unit.removesuffix("s") if done is not None else "",
        "scenes": [_over_time(scene) for scene in subject.scenes],
        "classes": [_classes(scene, idle_watts(device)) for scene in subject.scenes],
    }


def _over_time(scene: Scene) -> ScenePower:
    timeline = scene.drawn
    kind = timeline.kinds[0]
    level = use_levels(kind.slices(int(kind.ranks[0])), kind, timeline.step_s)[0]
    end = timeline.step_s
    return {"name": scene.name, "rank": kind.label, "end_s": end, "series": series(level, end, "power")}


def _classes(scene: Scene, idle: float) -> Table:
    resting = idle * scene.folded.step_s
    found = [(str(kind), each.joules) for kind, each in tallied(scene, lambda each: each.kind) if each.joules]
    rows = sorted([*found, ("idle, for the whole step", resting)], key=lambda row: -row[1])
    total = sum(joules for _, joules in rows) or 1.0
    columns = (column("class"), column("energy", "J", "energy_above_idle"), column("of all", "share", "energy_share"))
    return table(f"energy-{scene.name}", "By class of op", columns, ([k, j, j / total] for k, j in rows))
