"""Values over time for pictures: as many steps as a screen can show, with every peak kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from meshcast.traces import Level

MOST_STEPS = 900


class Series(TypedDict):
    """A value that holds from each moment to the next: seconds, and values in the unit."""

    name: str
    unit: str
    at: list[float]
    values: list[float]


def series(level: Level, end: float, name: str = "") -> Series:
    """A level with as many steps as a screen can show, up to the end of the step."""
    steps = coarse(level.steps, end)
    if steps and steps[-1][0] < end:
        steps = [*steps, (end, steps[-1][1])]
    return {
        "name": name or level.name,
        "unit": level.unit,
        "at": [round(at, 12) for at, _ in steps],
        "values": [float(value) for _, value in steps],
    }


def coarse(steps: Sequence[tuple[float, float]], end: float, most: int = MOST_STEPS) -> list[tuple[float, float]]:
    """Steps of a level, of each of `most` equal pieces of time the highest."""
    if len(steps) <= most or end <= 0:
        return list(steps)
    found: list[tuple[float, float]] = []
    piece, last = -1, 0.0
    for at, value in steps:
        here = min(most - 1, int(at / end * most))
        if here != piece:
            # The value that the piece begins with holds into it: a peak of the piece before may end later.
            found.append((here * end / most, max(value, last)))
            piece = here
        else:
            found[-1] = (found[-1][0], max(found[-1][1], value))
        last = value
    return found
