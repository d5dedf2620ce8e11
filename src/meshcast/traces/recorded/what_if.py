"""A recorded job with something faster: what a replay then takes, and between what it may lie.

A thing that is k times as fast takes t / k. Two things about that are not known, and each makes an end of the interval:

- Work has a part that no faster unit takes away: starting a kernel, the latency of a collective. It is no longer than the
  shortest recorded of its kind (kernels; collectives of a group), f, so that a step may take f + (t - f) / k.
- The device waited in front of some work without a reason in the trace (`delay`). Where that was for what becomes faster, the
  delay shrinks with it.

Both are widened by what the replay itself is off from the measured span.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.base import UsageError
from meshcast.evidence import class_of_name
from meshcast.jobs import TracedRanks, TraceFiles, TraceStep, replay
from meshcast.traces.recorded.linking import PAUSE

Seconds = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedReplay:
    """Seconds of a replay before and after something is faster, and the ends of the latter's interval."""

    asked: Mapping[str, float]
    before: float
    after: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """As JSON; what takes nothing is infinitely fast, which JSON has no number for."""
        asked = {name: times if math.isfinite(times) else "inf" for name, times in self.asked.items()}
        return {
            "faster": asked, "before_s": self.before, "after_s": self.after, "low_s": self.low, "high_s": self.high
        }  # fmt: skip


def check_named(job: TracedRanks, asked: Mapping[str, float], name: str) -> None:
    """Refuses to make faster what a job does not have.

    Raises:
        UsageError: Nothing in it is of a class that is to be faster.
    """
    known = {each for steps in job.steps for step in steps for each in _names_of(step)}
    if unused := set(asked) - known:
        raise UsageError(
            f"nothing in {name} is {min(unused)!r}", where="--faster", fix="one of " + ", ".join(sorted(known))
        )


def seconds_at(job: TracedRanks, asked: Mapping[str, float]) -> Seconds:
    """Seconds of every step with things that are so many times as fast."""
    return tuple(tuple((step.seconds or 0.0) / _times(step, asked) for step in steps) for steps in job.steps)


def changed_by(job: TracedRanks, asked: Mapping[str, float], after: float, error: float) -> ChangedReplay:
    """What something faster changes.

    Args:
        job: What was recorded.
        asked: How many times as fast something is.
        after: What a replay takes then.
        error: What a replay of the job is off from what was measured, as a share.
    """
    before, kept, shrunk = (
        replay(job, each).duration
        for each in (seconds_at(job, {}), _with_floors(job, asked), _without_delays(job, asked))
    )
    ends = (after, kept, shrunk)
    return ChangedReplay(
        asked=asked, before=before, after=after, low=min(ends) * (1 - error), high=max(ends) * (1 + error)
    )


def replay_error(files: TraceFiles, job: TracedRanks) -> float:
    """What a replay of a linked job is off from the measured span, as a share; 0 where nobody says what that was."""
    first = files.by_rank[min(files.by_rank)]
    path = first.with_name(f"{first.name.split('.')[0]}.linked.json")
    try:
        measured = float(json.loads(path.read_text())["measured_span_s"])
    except (OSError, ValueError, KeyError, TypeError):  # no linked job, or one whose summary is gone
        return 0.0
    return abs(replay(job, seconds_at(job, {})).duration / measured - 1) if measured > 0 else 0.0


def _with_floors(job: TracedRanks, asked: Mapping[str, float]) -> Seconds:
    """Seconds where the shortest of a kind is what no faster unit takes away."""
    floors: dict[tuple[int, str], float] = {}
    for number, steps in enumerate(job.steps):
        for step in steps:
            if (kind := _floor_kind(step)) and step.seconds:
                key = number, kind
                floors[key] = min(floors.get(key, math.inf), step.seconds / step.repeat)
    return tuple(
        tuple(_floored(step, floors.get((number, _floor_kind(step)), 0.0), _times(step, asked)) for step in steps)
        for number, steps in enumerate(job.steps)
    )


def _floored(step: TraceStep, floor: float, times: float) -> float:
    seconds = step.seconds or 0.0
    fixed = min(seconds, floor * step.repeat)
    return fixed + (seconds - fixed) / times


def _floor_kind(step: TraceStep) -> str:
    """What shares a shortest time with others; "" of what has none."""
    if step.does == "compute" and not step.waits:
        return "kernel"
    return f"collective {step.group}" if step.does in ("collective", "send") else ""


def _without_delays(job: TracedRanks, asked: Mapping[str, float]) -> Seconds:
    """Seconds where a delay in front of something faster shrinks with it."""
    found = []
    for steps, row in zip(job.steps, seconds_at(job, asked), strict=True):
        seconds = list(row)
        for step in steps:
            times = _times(step, asked)
            if times == 1.0 or step.does == "host" or step.waits:
                continue
            for place in step.before:
                if steps[place].waits and steps[place].does == "compute":
                    seconds[place] = min(seconds[place], (steps[place].seconds or 0.0) / times)
        found.append(tuple(seconds))
    return tuple(found)


def _times(step: TraceStep, asked: Mapping[str, float]) -> float:
    return math.prod(asked.get(name, 1.0) for name in _names_of(step))


def _names_of(step: TraceStep) -> Iterator[str]:
    """What may be said of a step to make it faster."""
    if step.does == "host":
        yield "pause" if step.name == PAUSE else "host"
    elif step.waits:
        yield "delay"
    elif step.does == "compute":
        yield kernel_class(step)
    elif step.does in ("collective", "send"):
        yield from ("collective", kernel_class(step))


def kernel_class(step: TraceStep) -> str:
    """The class of a kernel, by the kind or the name that it has."""
    if step.does != "compute":
        return f"collective: {step.kind.replace('_', '-')}" if step.kind else "collective: message"
    return class_of_name(step.name)
