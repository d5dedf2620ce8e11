"""The picture of an exploration: lines over what is swept."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from meshcast.explore.plot import exploration_svg


def picture(*points: dict[str, Any]) -> str:
    """Of points with a `time` and what else they differ in."""
    found = [
        SimpleNamespace(
            values={name: value for name, value in each.items() if name != "time"},
            point=SimpleNamespace(plan=None),
            time=each["time"],
        )
        for each in points
    ]
    space = SimpleNamespace(
        allowed=found, objectives=[SimpleNamespace(name="time", unit="s")], value=lambda each: each.time, pareto=found
    )
    return exploration_svg(space, title="a space")  # type: ignore[arg-type]


def test_numbers_make_an_axis_and_the_other_values_a_line_each() -> None:
    rates = ("0.5x", "1x", "2x")
    points = [
        {"time": 1.0, "hardware.rate": rate, "overlap": overlap, "plan": "fsdp=2"}
        for rate in rates
        for overlap in ("", "prefetch")
    ]
    text = picture(*points)
    lines = re.findall(r'<polyline points="([^"]*)"', text)
    assert [len(line.split()) for line in lines] == [3, 3]
    assert re.findall(r'text-anchor="end" fill="[^"]*">([^<]*)<', text) == ["overlap=none", "overlap=prefetch"]
    assert ">hardware.rate<" in text


def test_without_numbers_points_stand_in_their_order() -> None:
    text = picture({"time": 1.0, "on": "a"}, {"time": 2.0, "on": "b"})
    assert "<polyline" not in text
    assert "points, the best first" in text
