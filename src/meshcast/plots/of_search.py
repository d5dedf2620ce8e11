"""What a search has found as a picture: the front of two objectives, or a scaling curve; and the parts of the best steps."""

from __future__ import annotations

from typing import Any

from meshcast.base import InfeasibleError
from meshcast.explore import Exploration, Found
from meshcast.plots.drawing import PART_COLOURS, draw_parts, new_figure

MOST_BARS = 8


def search_figure(found: Exploration, *, title: str) -> Any:
    """The figure of a search: with two objectives their front, with several numbers of devices what more of them give.

    Raises:
        InfeasibleError: No point runs.
    """
    points = found.allowed
    if not points:
        raise InfeasibleError("no point runs: there is nothing to draw", where="--plot", fix="leave --plot out")
    best = _first_of_each(found.best) if found.per else found.best[:MOST_BARS]
    counts = {each.outcome.devices for each in points}
    two = len(found.objectives) > 1
    figure, axes = new_figure(2 if two or len(counts) > 1 else 1)
    bars = {_told(each, several=len(counts) > 1): dict(each.outcome.breakdown_s) for each in best}
    draw_parts(axes[-1], bars, title="the best")
    axes[-1].tick_params(axis="y", labelsize=7)
    figure.suptitle(title, fontsize=10)
    if two:
        _draw_front(axes[0], found, points)
    elif len(counts) > 1:
        _draw_scaling(axes[0], points)
    return figure


def _first_of_each(best: list[Found]) -> list[Found]:
    """The best point of every number of devices, the fewest first."""
    first: dict[int, Found] = {}
    for each in best:
        first.setdefault(each.outcome.devices or 0, each)
    return [first[count] for count in sorted(first)][:MOST_BARS]


def scaling(points: list[Found]) -> list[tuple[int, float]]:
    """Numbers of devices, and the most that the best plan of each gets done in a second (steps where no unit is known)."""
    best: dict[int, float] = {}
    for each in points:
        outcome = each.outcome
        if outcome.devices and outcome.step_time_s:
            rate = outcome.units_per_s or 1 / outcome.step_time_s
            best[outcome.devices] = max(best.get(outcome.devices, 0.0), rate)
    return sorted(best.items())


def _draw_scaling(axis: Any, points: list[Found]) -> None:
    curve = scaling(points)
    counts, rates = [count for count, _ in curve], [rate for _, rate in curve]
    axis.plot(counts, rates, marker="o", color=PART_COLOURS["compute"], label="the best plan")
    ideal = [rates[0] * count / counts[0] for count in counts]
    axis.plot(counts, ideal, ls=":", color="#666", label=f"as much a device as with {counts[0]:,}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(counts, [f"{count:,}" for count in counts])
    axis.set_xlabel("devices")
    axis.set_ylabel(f"{points[0].outcome.unit or 'steps'} a second")
    axis.set_title("scaling")
    axis.legend(fontsize=8, frameon=False)


def _draw_front(axis: Any, found: Exploration, points: list[Found]) -> None:
    first, second = found.objectives[:2]
    front = found.pareto

    def place(each: Found) -> tuple[float, float]:
        return abs(found.value(each, second)), abs(found.value(each, first))

    axis.scatter(*zip(*map(place, points), strict=True), s=14, color=PART_COLOURS["idle"], label="points")
    axis.plot(*zip(*sorted(map(place, front)), strict=True), marker="o", color=PART_COLOURS["compute"], label="front")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(f"{second.name} ({second.unit})")
    axis.set_ylabel(f"{first.name} ({first.unit})")
    axis.set_title("front")
    axis.legend(fontsize=8, frameon=False)


def _told(found: Found, *, several: bool) -> str:
    count = f"{found.outcome.devices:,} devices: " if several else ""
    return f"{count}{found.point.plan or found.point.target}"
