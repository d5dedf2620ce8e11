"""Power and use of links over a rank's time, from what its slices draw and send.

The power cap binds what a device draws on average over tens of milliseconds, not a kernel: products draw more than the cap while
they run, and the clock is the one that keeps the average of the step below it (`estimate.power`). What a meter shows is such
an average. So the counter is never above the cap: energy above it is counted in the time right behind, as far as that has
room, and what is left at the end of the step before. The integral stays the energy of the step.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshcast.traces.slices import MARKS, Level, RankTimeline, Slice

LevelSpan = tuple[float, float, float]  # from when to when, how much


def summed(name: str, unit: str, spans: Iterable[LevelSpan], base: float = 0.0) -> Level:
    """A level that each (start, end, amount) raises while it lasts."""
    changes: dict[float, float] = {0.0: 0.0}
    for start, end, amount in spans:
        if end > start and amount:
            changes[start] = changes.get(start, 0.0) + amount
            changes[end] = changes.get(end, 0.0) - amount
    steps: list[tuple[float, float]] = []
    value, largest = base, base
    for moment in sorted(changes):
        value += changes[moment]
        largest = max(largest, abs(value))
        # Sums of what came and went leave rounding behind.
        shown = base if abs(value - base) < 1e-9 * largest else value
        if not steps or steps[-1][1] != shown:
            steps.append((moment, shown))
    return Level(name=name, unit=unit, steps=tuple(steps))


def limited(level: Level, most: float, end: float) -> Level:
    """A level with the same integral from 0 to `end` that is never above `most`, or its average if that is more.

    With `E(t)` the integral, this is the largest `E'(t) <= E(t)` that rises by no more than `most` a second, raised to the line
    that rises to `E(end)` so fast: what is above comes later, and where no time is left, earlier.
    """
    spans: list[LevelSpan] = [
        (at, after, value)
        for (at, value), after in zip(level.steps, [*(at for at, _ in level.steps[1:]), end], strict=True)
        if after > at
    ]
    if not spans or all(value <= most for _, _, value in spans):
        return level
    most = max(most, sum(value * (after - at) for at, after, value in spans) / end)
    found, backlog = _moved(spans, most, 0.0)
    if backlog > 0:  # the same from the end, backwards
        found = _moved(reversed(found), most, backlog, forward=False)[0][::-1]
    steps: list[tuple[float, float]] = []
    for at, after, value in found:
        if after > at and (not steps or steps[-1][1] != value):
            steps.append((at, value))
    return Level(name=level.name, unit=level.unit, steps=tuple(steps))


def _moved(
    spans: Iterable[LevelSpan], most: float, backlog: float, *, forward: bool = True
) -> tuple[list[LevelSpan], float]:
    """Spans in the order in which they come, with what is above `most` moved to the next ones; and what is left of it."""
    found: list[LevelSpan] = []
    for at, after, value in spans:
        room = (most - value) * (after - at)
        if room <= backlog:
            backlog -= room
            found.append((at, after, most))
        elif backlog > 0:
            taken = backlog / (most - value)
            backlog = 0.0
            through = at + taken if forward else after - taken
            first, last = (most, value) if forward else (value, most)
            parts = [(at, through, first), (through, after, last)]
            found += parts if forward else parts[::-1]
        else:
            found.append((at, after, value))
    return found, backlog


def use_levels(slices: Iterable[Slice], kind: RankTimeline, step_s: float) -> tuple[Level, ...]:
    """Power and use of links over a step: joules and bytes of each slice, spread over its time, power up to the cap."""
    drawn: list[LevelSpan] = []
    sent: dict[str, list[LevelSpan]] = {}
    for each in slices:
        seconds = each.end - each.start
        if seconds <= 0 or each.what.category in MARKS:
            continue
        if each.what.joules:
            drawn.append((each.start, each.end, each.turns * each.what.joules / seconds))
        for level, size in each.what.sent.items():
            if size:
                sent.setdefault(level, []).append((each.start, each.end, each.turns * size / seconds))
    links = (summed(f"sent over {level}", "B/s", spans) for level, spans in sorted(sent.items()))
    power = summed("power", "W", drawn, kind.idle_watts)
    return (limited(power, kind.most_watts, max(step_s, power.steps[-1][0])), *links)
