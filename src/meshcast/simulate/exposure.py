"""Which time is covered by what: stretches of time, and collectives that share the exposed ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from meshcast.base import Group

Interval = tuple[float, float]


def added_up(seconds: Iterable[float]) -> float:
    """The sum, one after the other: `sum` of floats rounds otherwise from Python 3.12 on than adding them does."""
    total = 0.0
    for each in seconds:
        total += each
    return total


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of the stretches of time, as stretches apart from each other, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def covered(times: Sequence[Interval], by: Sequence[Interval]) -> tuple[float, list[Interval]]:
    """How much of some stretches of time others cover, and what they leave; both come in order of start."""
    total = 0.0
    left: list[Interval] = []
    cursor = 0
    for start, end in times:
        position = start
        while cursor < len(by) and by[cursor][1] <= position:
            cursor += 1
        probe = cursor
        while probe < len(by) and by[probe][0] < end:
            begin, until = max(position, by[probe][0]), min(end, by[probe][1])
            if until > begin:
                if begin > position:
                    left.append((position, begin))
                total += until - begin
                position = until
            probe += 1
        if end > position:
            left.append((position, end))
    return total, left


def exposed_by(
    waiting: Sequence[Interval], sending: Sequence[tuple[float, float, Group]]
) -> tuple[float, float, dict[Group, float]]:
    """Seconds in which nothing is computed: with collectives under way, without, and each group's part.

    Args:
        waiting: Stretches of time, apart from each other and in order.
        sending: When collectives start and end, and over which group. Those under way at once share the time equally.
    """
    by_group: defaultdict[Group, float] = defaultdict(float)
    exposed = idle = 0.0
    if not sending:
        return 0.0, added_up(end - start for start, end in waiting), {}
    queue = sorted(sending, key=lambda each: each[0])
    active: list[tuple[float, Group]] = []
    cursor = 0
    for start, end in waiting:
        position = start
        while position < end:
            while cursor < len(queue) and queue[cursor][0] <= position:
                active.append((queue[cursor][1], queue[cursor][2]))
                cursor += 1
            active = [each for each in active if each[0] > position]
            until = min(end, *(each[0] for each in active), queue[cursor][0] if cursor < len(queue) else end)
            if active:
                exposed += until - position
                for _, group in active:
                    by_group[group] += (until - position) / len(active)
            else:
                idle += until - position
            position = until
    return exposed, idle, dict(by_group)
