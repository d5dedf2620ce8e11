"""The device's pauses before launches, each in its place in a timeline: what it launches and all that starts later moves back.

Nothing gets longer but loops, which have the pauses of all their turns. So kernels and collectives keep their durations, their
order on every stream and what they wait for; one that runs while a pause begins goes on beside it.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from meshcast.base import copier
from meshcast.lower import Step
from meshcast.simulate.critical import Looped, Segment, flattened, shortened
from meshcast.simulate.timeline import Breakdown, Repeat, Span, Timeline

ROUNDING = 1e-12  # seconds by which moments that are meant to be the same differ
_moved = copier(Span, "start", "end")


def with_pauses(timeline: Timeline, launches: Iterable[Sequence[Step]], pause: float) -> Timeline:
    """A step with a pause before each of these launches.

    Args:
        timeline: The step without pauses.
        launches: The kernels of each launch (`simulate.host.awaited_launches`).
        pause: Seconds of a pause.
    """
    numbers = {id(kernel): number for number, kernels in enumerate(launches) for kernel in kernels}
    found = _Pauses(numbers=numbers, pause=pause).block(timeline)
    gap = _seconds(timeline.path) - sum(each.seconds for each in timeline.critical)
    return replace(found, critical=shortened(flattened(found.path), gap))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pauses:
    numbers: dict[int, int]  # of launches, by the identity of their kernels
    pause: float

    def block(self, timeline: Timeline) -> Timeline:
        """A block with its pauses and those of the loops in it."""
        begins: dict[int, float] = {}  # launches of this block
        loops: dict[int, Timeline] = {}  # by the identity of the loop
        for span in timeline.spans:
            if isinstance(span, Repeat):
                loops[id(span)] = self.block(span.body)
            elif (number := self.numbers.get(id(span.kernel))) is not None:
                begins[number] = min(begins.get(number, math.inf), span.start)
        longer = {
            id(span): span.trips * (loops[id(span)].duration - span.body.duration)
            for span in timeline.spans
            if isinstance(span, Repeat)
        }
        ended = ((span.end, longer[id(span)]) for span in timeline.spans if isinstance(span, Repeat))
        moves = sorted([*((moment, self.pause) for moment in begins.values()), *ended])
        moments = [moment for moment, _ in moves]
        late = [0.0, *itertools.accumulate(seconds for _, seconds in moves)]
        if not late[-1]:
            return timeline

        def moved(span: Span | Repeat) -> Span | Repeat:
            by = late[bisect_right(moments, span.start)]
            if not isinstance(span, Repeat):
                return _moved(span, span.start + by, span.end + by)
            body, end = loops[id(span)], span.end + by + longer[id(span)]
            return replace(span, body=body, start=span.start + by, end=end)

        inside = {id(span.body.path): loops[id(span)].path for span in timeline.spans if isinstance(span, Repeat)}
        return replace(
            timeline,
            spans=tuple(map(moved, timeline.spans)),
            duration=timeline.duration + late[-1],
            breakdown=timeline.breakdown + Breakdown(idle=late[-1]),
            path=self._path(timeline.path, sorted(begins.values()), inside),
        )

    def _path(
        self,
        path: Sequence[Segment | Looped],
        begins: Sequence[float],
        inside: dict[int, tuple[Segment | Looped, ...]],
    ) -> tuple[Segment | Looped, ...]:
        """A block's path with its pauses; what pauses within a segment does so behind it."""
        found: list[Segment | Looped] = []
        now, done = 0.0, 0
        for each in (*path, None):
            count = len(begins) if each is None else bisect_right(begins, now + ROUNDING)
            if count > done:
                seconds = (count - done) * self.pause
                found.append(Segment(kind="idle", what="waiting for the host", seconds=seconds, count=count - done))
                done = count
            if each is None:
                break
            now += _seconds((each,))
            found.append(replace(each, path=inside.get(id(each.path), each.path)) if isinstance(each, Looped) else each)
        return tuple(found)


def _seconds(path: Sequence[Segment | Looped]) -> float:
    return sum(each.seconds for each in flattened(path))
