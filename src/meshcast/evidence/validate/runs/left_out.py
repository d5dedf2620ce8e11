"""Intervals judged on sources that had no say in their width: each source by the others.

A row whose measured time m lies e = |ln(m / t)| from the predicted t, on the side whose end lies h = |ln(end / t)| away, asks for
an interval `e / h` times as wide as it has; it lies inside where that is at most 1. For every source the share `KEPT` of what
the other sources' rows ask for is the width that they would have chosen, and its own rows are judged by that.

`KEPT` was chosen with these rows in view. `halves` asks the same with a share that was not: one half of the sources chooses a
width that `MEANT` of its rows lie inside of, the other half is judged by it, in every way of taking half of the sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from meshcast.evidence.validate.programs import ProgramRow

KEPT = 0.94
MEANT = 0.9  # the middle of what is asked of intervals, 85 to 95 %: no row had a say in it
_FEW = 0.1  # of all ways, the worst that are told


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A source judged by the others.

    Attributes:
        source: Its name.
        rows: How many rows of it have an interval.
        times: How many times as wide as they are the others' rows would have the intervals.
        inside: How many of its rows lie inside then.
        inside_own: How many lie inside the intervals as they are.
    """

    source: str
    rows: int
    times: float
    inside: int
    inside_own: int


def asked_width(row: ProgramRow) -> float | None:
    """How many times as wide an interval a row asks for; None where it has none, infinite where an end is the step itself."""
    if not (row.measured and row.predicted and row.low and row.high):
        return None
    error = math.log(row.measured / row.predicted)
    room = math.log(row.high / row.predicted) if error > 0 else math.log(row.predicted / row.low)
    return abs(error) / room if room > 0 else math.inf


def left_out(rows: Iterable[ProgramRow], kept: float = KEPT) -> list[LeftOut]:
    """Every source judged by the others; nothing where there is but one."""
    asked = [(row.group, width) for row in rows if (width := asked_width(row)) is not None]
    found = []
    for source in dict.fromkeys(group for group, _ in asked):
        own = [width for group, width in asked if group == source]
        others = [width for group, width in asked if group != source]
        if others:
            times = float(np.quantile(others, kept))
            inside, inside_own = (sum(width <= limit for width in own) for limit in (times, 1.0))
            found.append(LeftOut(source=source, rows=len(own), times=times, inside=inside, inside_own=inside_own))
    return found


def share_inside(found: Sequence[LeftOut]) -> float | None:
    """Of the rows of all sources, those inside with a width that the other sources chose; None without rows."""
    rows = sum(each.rows for each in found)
    return sum(each.inside for each in found) / rows if rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """Sources judged by a width that others chose, over all ways of taking half of them.

    Attributes:
        ways: How many there are.
        times: How many times as wide as they are intervals would be, in the middle of all ways.
        inside: The share of rows of the other half inside then, its mean over all ways.
        worst: The same that one way in ten is below.
    """

    ways: int
    times: float
    inside: float
    worst: float


def halves(rows: Iterable[ProgramRow], meant: float = MEANT) -> Halves | None:
    """The judgement of every half of the sources by the rest; None of fewer than two sources."""
    asked: dict[str, list[float]] = {}
    for row in rows:
        if (width := asked_width(row)) is not None:
            asked.setdefault(row.group, []).append(width)
    choosing = list(combinations(asked, len(asked) // 2))
    if len(asked) < 2:
        return None
    times, shares = [], []
    for half in choosing:
        chosen = float(np.quantile([width for source in half for width in asked[source]], meant))
        judged = [width for source, widths in asked.items() if source not in half for width in widths]
        times.append(chosen)
        shares.append(sum(width <= chosen for width in judged) / len(judged))
    return Halves(
        ways=len(choosing),
        times=float(np.median(times)),
        inside=float(np.mean(shares)),
        worst=float(np.quantile(shares, _FEW)),
    )
