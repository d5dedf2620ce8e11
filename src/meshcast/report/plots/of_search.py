"""What a search has found as a picture: the front of two objectives, or a scaling curve; and the parts of the best steps."""

from __future__ import annotations

from typing import Any

from meshcast.base import InfeasibleError
from meshcast.explore import Exploration, Found
from meshcast.report.plots.drawing import PART_COLOURS, draw_parts, new_figure, tell_values

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
    names = _names(best, several=len(counts) > 1)
    bars = {name: dict(each.outcome.breakdown_s) for name, each in zip(names, best, strict=True)}
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
    tell_values(axis.yaxis, "")
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
    unit = next((each.outcome.unit for each in points if each.outcome.unit), None) or "units"
    for wanted, one, label in ((second, axis.xaxis, axis.set_xlabel), (first, axis.yaxis, axis.set_ylabel)):
        tell_values(one, "s" if wanted.unit == "s" else "")
        label(f"{wanted.name} ({wanted.unit.replace('units', unit).replace('/unit', '/' + unit.removesuffix('s'))})")
    axis.set_title("front")
    axis.legend(fontsize=8, frameon=False)


def _names(found: list[Found], *, several: bool) -> list[str]:
    """What points are called: by their plans, and by what else was searched over where that differs between them."""
    keys = dict.fromkeys(key for each in found for key in each.values if key not in ("plan", "devices"))
    differing = [key for key in keys if len({str(each.values.get(key)) for each in found}) > 1]
    names = []
    for each in found:
        count = f"{each.outcome.devices:,} devices: " if several else ""
        others = [f"{key.rpartition('.')[2]}={each.values.get(key)}" for key in differing]
        names.append("\n".join(filter(None, (f"{count}{each.point.plan or each.point.target}", ", ".join(others)))))
    # Bars of one name would lie on top of each other.
    return [
        name if names.count(name) == 1 else f"{name} ({each.point.number})"
        for name, each in zip(names, found, strict=True)
    ]
