"""A picture of an exploration: a point for each, the first objective over the second or over what is swept, the front joined."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from meshcast.explore.exploration import Exploration
from meshcast.explore.search import Found

WIDTH, HEIGHT, EDGE = 640, 400, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")


def exploration_svg(exploration: Exploration, *, title: str) -> str:
    """The picture as SVG, for any browser: logarithmic axes, colours by the first axis of the space."""
    points = exploration.allowed
    first = exploration.objectives[0]
    second = exploration.objectives[1] if len(exploration.objectives) > 1 else None
    names = sorted({name for each in points for name in each.values})
    across = (
        [abs(exploration.value(each, second)) for each in points]
        if second
        else [float(i + 1) for i, _ in enumerate(points)]
    )
    up = [abs(exploration.value(each)) for each in points]
    x, y = _Scale.of(across, EDGE, WIDTH - 20), _Scale.of(up, HEIGHT - EDGE, 40)
    groups = list(dict.fromkeys(str(each.values.get(names[0], "")) if names else "" for each in points))
    marks = [_mark(each, names, groups, x.at(a), y.at(u)) for each, a, u in zip(points, across, up, strict=True)]
    joined = ""
    if second is not None:
        line = " ".join(
            f"{x.at(abs(exploration.value(each, second))):.1f},{y.at(abs(exploration.value(each))):.1f}"
            for each in exploration.pareto
        )
        joined = f'<polyline points="{line}" fill="none" stroke="#888"/>'
    legend = "".join(
        f'<text x="{WIDTH - 200}" y="{50 + 16 * number}" fill="{_colour(number)}">{html.escape(f"{names[0]}={group}")}</text>'
        for number, group in enumerate(groups[: len(_COLOURS)])
        if names
    )
    below = f"{second.name} ({second.unit})" if second else "points, the best first"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><text x="{EDGE}" y="20" font-size="14">{html.escape(title)}</text>'
        f"{x.ticks(across=True)}{y.ticks(across=False)}{joined}{''.join(marks)}{legend}"
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(below)}</text>'
        f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">'
        f"{html.escape(f'{first.name} ({first.unit})')}</text></svg>\n"
    )


def _mark(found: Found, names: Sequence[str], groups: Sequence[str], x: float, y: float) -> str:
    group = str(found.values.get(names[0], "")) if names else ""
    told = ", ".join([*(f"{name}={found.values.get(name)}" for name in names), found.point.plan or ""])
    colour = _colour(groups.index(group))
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{html.escape(told)}</title></circle>'


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


class _Scale:
    """A logarithmic scale between two places."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high, self._start, self._end = low, high, start, end

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> _Scale:
        kept = [value for value in values if value > 0] or [1.0]
        low, high = min(kept) / 1.1, max(kept) * 1.1
        return cls(low, high, start, end)

    def at(self, value: float) -> float:
        share = math.log(max(value, self._low) / self._low) / math.log(self._high / self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self, *, across: bool) -> str:
        """Three numbers along an axis."""
        values = (self._low * 1.1, math.sqrt(self._low * self._high), self._high / 1.1)
        if across:
            return "".join(
                f'<text x="{self.at(v):.1f}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{v:.3g}</text>'
                for v in values
            )
        return "".join(f'<text x="{EDGE - 6}" y="{self.at(v):.1f}" text-anchor="end">{v:.3g}</text>' for v in values)
