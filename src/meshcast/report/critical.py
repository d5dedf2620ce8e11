"""The critical path in time: which stretch of it lies on which kind of rank, and what it is spent on.

Of a program its segments follow each other without a gap, loops turn by turn (`simulate.critical`); of a pipeline it leads from
stage to stage (`simulate.pipelines.runs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meshcast.report.subject import Scene
from meshcast.simulate import Looped, Segment, Timeline
from meshcast.traces import Slice, Understanding

MOST_STRETCHES = 20_000
# Lanes that a stretch of a kind lies on.
_LANES = {
    "compute": ("compute",),
    "memory": ("compute",),
    "communication": ("communication",),
    "copy": ("copy",),
    "task": ("task",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of the path, in seconds from the start of the step."""

    start: float
    end: float
    kind: str
    what: str

    def on(self, group: str, each: Slice) -> bool:
        """Whether a slice in the middle of it is on the path: it is on its lane and, of a collective, is the one."""
        if group not in _LANES.get(self.kind, ()):
            return False
        if self.kind != "communication":
            return True
        facts = each.what.facts
        return self.what == f"{str(facts.get('kind', '')).replace('_', '-')} over {facts.get('over', '')}"


def critical_stretches(scene: Scene, *, unrolled: bool) -> dict[int, list[Stretch]]:
    """By kind of rank, the stretches of the critical path in order of time."""
    if scene.recorded is not None:
        return _recorded(scene.recorded)
    if scene.pipeline is not None:
        found: dict[int, list[Stretch]] = {}
        now = 0.0
        for each in scene.pipeline.critical_path:
            kind = "communication" if each.what in ("send", "gradient reduction", "tied gradients") else "task"
            stretch = Stretch(start=now, end=now + each.seconds, kind=kind, what=each.what)
            found.setdefault(each.stage, []).append(stretch)
            now = stretch.end
        return found
    timeline = scene.work[0].passes[0].run.timeline
    stretches = _merged(_stretches(timeline, unrolled=unrolled))
    return dict.fromkeys(range(len(scene.drawn.kinds)), stretches)


def _recorded(job: Understanding) -> dict[int, list[Stretch]]:
    """Of a job of traces: it goes from rank to rank, from the first of its steps to the last."""
    found: dict[int, list[Stretch]] = {}
    now = 0.0
    for rank, step, seconds in job.critical:
        kind = "communication" if step.does in ("collective", "send") else "compute"
        if step.does == "host" or step.waits:
            kind = "idle" if step.waits else "host"
        if seconds > 0:
            stretch = Stretch(start=now, end=now + seconds, kind=kind, what=step.name)
            found.setdefault(job.job.classes.index(rank), []).append(stretch)
        now += seconds
    return found


def _stretches(timeline: Timeline, *, unrolled: bool) -> Iterator[Stretch]:
    now = 0.0
    for kind, what, seconds in _walked(timeline.path, 1.0, unrolled=unrolled):
        # The pause behind the last kernel is on a block's path, and nobody waits for it in a step.
        end = min(now + seconds, timeline.duration)
        if end > now:
            yield Stretch(start=now, end=end, kind=kind, what=what)
        now = end


def _walked(path: Iterable[Segment | Looped], scale: float, *, unrolled: bool) -> Iterator[tuple[str, str, float]]:
    for each in path:
        if isinstance(each, Segment):
            yield each.kind, each.what, scale * each.seconds
        elif unrolled:
            for _ in range(each.trips):
                yield from _walked(each.path, scale, unrolled=True)
        else:
            yield from _walked(each.path, scale * each.trips, unrolled=False)


def _merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Neighbours of one kind together, once there are more than a picture can show."""
    listed = list(stretches)
    if len(listed) <= MOST_STRETCHES:
        return listed
    found: list[Stretch] = []
    shortest = listed[-1].end / MOST_STRETCHES
    for each in listed:
        last = found[-1] if found else None
        if last is not None and (each.kind == last.kind or last.end - last.start < shortest):
            found[-1] = Stretch(start=last.start, end=each.end, kind=last.kind, what=last.what)
        else:
            found.append(each)
    return found
