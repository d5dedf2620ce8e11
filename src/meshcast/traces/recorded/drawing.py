"""A job of traces in time, as timelines draw it: what its replay says ran when, stream by stream and thread by thread."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from meshcast.base import format_bytes
from meshcast.jobs import TraceStep
from meshcast.traces import Category, Description, JobTimeline, RankTimeline, Slice
from meshcast.traces.recorded.understanding import Understanding
from meshcast.traces.recorded.what_if import kernel_class

_TRACKS = {"device": "compute", "link": "communication", "host": "host", "memory": "copies"}


def recorded_timeline(found: Understanding) -> JobTimeline:
    """The replay of all classes of rank."""
    kinds = tuple(
        RankTimeline(
            ranks=np.flatnonzero(found.job.of_rank == number), label="", slices=partial(_slices, found, number),
            memory=lambda: (), idle_watts=0.0, most_watts=0.0,
        )
        for number in range(len(found.job.classes))
    )  # fmt: skip
    drawn = sum(sum(1 for _ in _slices(found, number, 0)) for number in range(len(kinds)))
    return JobTimeline(
        name=found.job.name, ranks=len(found.job.of_rank), kinds=kinds, step_s=found.run.duration, facts={}, slices=drawn,
        folded=False,
    )  # fmt: skip


def _slices(found: Understanding, number: int, rank: int) -> Iterator[Slice]:
    """What one rank of a class runs; `rank` does not matter, as all of them run the same."""
    for index, step in enumerate(found.job.steps[number]):
        start, end = found.began(number, index), found.run.ends[number][index]
        if step.waits or step.does not in ("compute", "collective", "send", "host") or end <= start:
            continue
        where, lane = step.stream
        track = _TRACKS.get(where, where)
        yield Slice(
            what=_described(found, number, step), track=f"{track} {lane}" if lane else track, start=start, end=end
        )


def _described(found: Understanding, number: int, step: TraceStep) -> Description:
    if step.does in ("collective", "send"):
        said = {"kind": step.kind or "message", "over": found.group_name(number, step), "size": format_bytes(step.size)}
        return Description(name=step.name, category="collective", facts=said)
    if step.does == "host":
        return Description(name=step.name, category="task")
    category: Category = "copy" if step.stream[0] == "memory" else "kernel"
    return Description(name=step.name, category=category, facts={"class": kernel_class(step)})
