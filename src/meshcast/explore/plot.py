"""A picture of an exploration: the first objective of every point over the second, the front joined.

With one objective it stands over what is swept, an axis of three numbers or more (bandwidths, devices, sizes), with a line for
each combination of the others; where nothing is, over the points' order.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from meshcast.explore.exploration import Exploration
from meshcast.explore.search import Found

WIDTH, HEIGHT, EDGE = 640, 400, 60
_ENOUGH = 3  # numbers that make an axis
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")


def exploration_svg(exploration: Exploration, *, title: str) -> str:
    """The picture as SVG, for any browser: logarithmic axes, colours by the first axis of the space."""
    points = exploration.allowed
    first = exploration.objectives[0]
    second = exploration.objectives[1] if len(exploration.objectives) > 1 else None
    names = sorted({name for each in points for name in each.values})
    swept = _swept(points, names) if second is None else None
    if second is not None:
        across = [abs(exploration.value(each, second)) for each in points]
    elif swept is not None:
        across = [_number(each, swept) or 0.0 for each in points]
    else:
        across = [float(place + 1) for place, _ in enumerate(points)]
    up = [abs(exploration.value(each)) for each in points]
    x, y = _Scale.of(across, EDGE, WIDTH - 20), _Scale.of(up, HEIGHT - EDGE, 40)
    several = [name for name in names if len({str(each.values.get(name)) for each in points}) > 1]
    told_by = [name for name in several if name != swept] if swept else names[:1]
    groups = list(dict.fromkeys(_group(each, told_by) for each in points))
    places = [(x.at(a), y.at(u)) for a, u in zip(across, up, strict=True)]
    marks = [
        _mark(each, names, _colour(groups.index(_group(each, told_by))), *place)
        for each, place in zip(points, places, strict=True)
    ]
    joined = ""
    if swept is not None:
        for number, group in enumerate(groups):
            line = sorted(place for each, place in zip(points, places, strict=True) if _group(each, told_by) == group)
            joined += _line(line, _colour(number))
    if second is not None:
        front = [
            (x.at(abs(exploration.value(each, second))), y.at(abs(exploration.value(each))))
            for each in exploration.pareto
        ]
        joined = _line(front, "#888")
    legend = "".join(
        f'<text x="{WIDTH - 24}" y="{50 + 16 * number}" text-anchor="end" fill="{_colour(number)}">{html.escape(group)}</text>'
        for number, group in enumerate(groups[: len(_COLOURS)])
        if names
    )
    below = f"{second.name} ({second.unit})" if second else swept or "points, the best first"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><text x="{EDGE}" y="20" font-size="14">{html.escape(title)}</text>'
        f"{x.ticks(across=True)}{y.ticks(across=False)}{joined}{''.join(marks)}{legend}"
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(below)}</text>'
        f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">'
        f"{html.escape(f'{first.name} ({first.unit})')}</text></svg>\n"
    )


def _swept(points: Sequence[Found], names: Sequence[str]) -> str | None:
    """The axis with most numbers, three or more; hardware's before others."""
    counts = {
        name: len({_number(each, name) for each in points})
        for name in names
        if all(_number(each, name) is not None for each in points)
    }
    found = max(counts, key=lambda name: (counts[name], name.startswith("hardware")), default=None)
    return found if found is not None and counts[found] >= _ENOUGH else None


def _number(found: Found, name: str) -> float | None:
    """A value that is a number, with or without a unit: `64`, `0.25x`, `4.8 TB/s`."""
    text = re.match(r"\s*(\d+(?:\.\d+)?)", str(found.values.get(name, "")))
    return float(text[1]) if text else None


def _group(found: Found, names: Sequence[str]) -> str:
    """What a point has of the axes that colours tell apart."""
    return ", ".join(f"{name.rpartition('.')[2]}={found.values.get(name, '') or 'none'}" for name in names)


def _line(places: Sequence[tuple[float, float]], colour: str) -> str:
    told = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{told}" fill="none" stroke="{colour}"/>'


def _mark(found: Found, names: Sequence[str], colour: str, x: float, y: float) -> str:
    told = ", ".join([*(f"{name}={found.values.get(name)}" for name in names), found.point.plan or ""])
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
