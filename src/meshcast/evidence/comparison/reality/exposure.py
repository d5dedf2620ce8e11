"""A step's time shared out among what ran, so that the parts add up to it.

At every moment one kind of thing is charged: the kernels that compute then, in equal parts; where there are none, copies beside
compute; where there are none either, collectives; and where nothing runs, `idle and host gaps`. So what is hidden costs nothing,
as in the prediction's own breakdown, and the sum over classes is the step's duration whatever overlaps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from meshcast.evidence.profiler.classes import IDLE

COMPUTING, COPYING, SENDING = range(3)  # what is charged first
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Something that ran, in seconds."""

    start: float
    end: float
    kind: str
    tier: int = COMPUTING


def shared_out(intervals: Iterable[Interval], start: float, duration: float) -> dict[str, float]:
    """Seconds of each class in the step from `start` on; what lies outside of it is not counted."""
    stop = start + duration
    changes: list[tuple[float, int, int, str]] = []
    for interval in intervals:
        begin, end = max(start, interval.start), min(stop, interval.end)
        if end > begin:
            changes += [(begin, 1, interval.tier, interval.kind), (end, -1, interval.tier, interval.kind)]
    changes.sort()
    seconds: defaultdict[str, float] = defaultdict(float)
    running: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    last = start
    for moment, change, tier, kind in changes:
        charged = next((group for group in running if group), None)
        if charged is not None and moment > last:
            total = charged.total()
            for name, count in charged.items():
                seconds[name] += (moment - last) * count / total
        last = moment
        group = running[tier]
        group[kind] += change
        if not group[kind]:
            del group[kind]
    # What is left is idle, so that the parts add up; but not what rounding leaves.
    idle = duration - sum(seconds.values())
    seconds[IDLE] = idle if idle > ROUNDING * duration else 0.0
    return dict(seconds)
