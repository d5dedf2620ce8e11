"""`PipelineRun`: a step of a pipeline in time, put together from when its tasks and what comes behind them start and end.

Whoever finds these times (`simulation`, or a replay of every rank's nodes) has them laid out by `run_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshcast.base import larger, largest, number_of
from meshcast.simulate.pipelines.columns import WORKS, Columns
from meshcast.simulate.pipelines.schedule import PipelineSchedule

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One stage's step. `busy + sending + reducing + idle` is the time from one step to the next.

    Attributes:
        starts: When each task of its order starts.
        ends: When each ends.
        busy: Seconds of its tasks and its optimizer.
        sending: Seconds in which it does nothing but wait for a message on its way.
        reducing: Seconds in which it does nothing but reduce gradients.
        idle: Seconds in which it waits for other stages: its bubble.
        ready: When its last task is done and, where it waits for that, what it sent has arrived.
        end: When its optimizer is done.
        reduce_s: Seconds of its reductions, hidden or not.
    """

    starts: Sequence[float] = field(repr=False)
    ends: Sequence[float] = field(repr=False)
    busy: float
    sending: float
    reducing: float
    idle: float
    ready: float
    end: float
    reduce_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalSegment:
    """A run of the critical path on one stage: tasks in a row, or what is waited for between two stages."""

    stage: int
    what: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A step of a pipeline.

    Attributes:
        schedule: Its order.
        stages: What each stage does.
        duration: From one step to the next: until the last stage is done or, without a barrier, the longest that a
            stage needs from its first task to the end of its optimizer.
        critical_path: What the end of the step waited for, in order of time.
    """

    schedule: PipelineSchedule
    stages: tuple[StageRun, ...]
    duration: float
    critical_path: tuple[CriticalSegment, ...] = field(repr=False)

    @property
    def makespan(self) -> float:
        """From the start of the first stage to the end of the last one: longer than `duration` where steps overlap."""
        return max(stage.end for stage in self.stages)

    @property
    def bubble(self) -> float:
        """The share of all stages' time in which they wait for each other."""
        return sum(stage.idle for stage in self.stages) / (self.duration * len(self.stages)) if self.duration else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """When every task starts and ends.

    Attributes:
        starts: By task.
        ends: By task.
        causes: The task whose end or message a task's start waited for: its own stage's one before, or another;
            the number of tasks where it waited for nothing.
        free: When each stage is free after its last task.
        sending: Seconds that each stage waits for messages on their way.
        held: The part of these seconds inside its tasks, in which their own communication waits for a channel.
    """

    starts: Seconds
    ends: Seconds
    causes: NDArray[np.int64]
    free: Seconds
    sending: Seconds
    held: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a stage's step behind its last task: reductions and the update, in seconds."""

    end: float
    update: float
    exposed: float  # seconds of reductions with nothing beside them
    reduce_s: float
    ready: float  # when the last task ended
    tied: float = 0.0  # seconds of the sum of shared gradients, which `update` holds, too
    behind: int | None = None  # the stage that this sum waited for, if that is another one


def run_of(schedule: PipelineSchedule, columns: Columns, times: TaskTimes, finishes: Sequence[Finish]) -> PipelineRun:
    """The step, a row for each stage, with what its end waited for."""
    slices = [columns.of_stage(stage) for stage in range(schedule.stages)]
    first = [times.starts[mine.start] if mine.stop > mine.start else 0.0 for mine in slices]
    if schedule.barrier:
        first = [0.0] * schedule.stages
    windows = [finish.end - number_of(start) for finish, start in zip(finishes, first, strict=True)]
    duration = largest(windows)
    several = (
        times.starts.ndim > 1
    )  # points of a sweep: when each task runs, and what the end waited for, is told of one
    stages = []
    for stage, finish in enumerate(finishes):
        starts, ends = times.starts[slices[stage]], times.ends[slices[stage]]
        # Summed along memory, as of one point alone: other orders would round otherwise.
        lasted = np.ascontiguousarray((ends - starts).T).sum(axis=-1)
        busy = number_of(lasted - times.held[stage]) + finish.update
        sending = number_of(times.sending[stage])
        stages.append(
            StageRun(
                starts=() if several else starts.tolist(),
                ends=() if several else ends.tolist(),
                busy=busy,
                sending=sending,
                reducing=finish.exposed,
                idle=larger(0.0, duration - busy - sending - finish.exposed),
                ready=finish.ready,
                end=finish.end,
                reduce_s=finish.reduce_s,
            )
        )
    path: tuple[CriticalSegment, ...] = ()
    if not several:
        last = max(range(schedule.stages), key=lambda stage: windows[stage])
        path = _critical_path(columns, times, last, finishes)
    return PipelineRun(schedule=schedule, stages=tuple(stages), duration=duration, critical_path=path)


def _critical_path(
    columns: Columns, times: TaskTimes, stage: int, finishes: Sequence[Finish]
) -> tuple[CriticalSegment, ...]:
    """Back from the end of the step to its start, each time to what came last."""
    found: list[CriticalSegment] = []
    finish = finishes[stage]
    if finish.update > finish.tied:
        found.append(CriticalSegment(stage=stage, what="optimizer", seconds=finish.update - finish.tied))
    if finish.tied:
        found.append(CriticalSegment(stage=stage, what="tied gradients", seconds=finish.tied))
    if finish.behind is not None:
        stage, finish = finish.behind, finishes[finish.behind]
    if finish.exposed:
        found.append(CriticalSegment(stage=stage, what="gradient reduction", seconds=finish.exposed))
    counts: dict[str, int] = {}
    seconds = 0.0

    def close() -> None:
        nonlocal seconds, counts
        if counts:
            what = " + ".join(f"{count} {work}" for work, count in sorted(counts.items()))
            found.append(CriticalSegment(stage=stage, what=what, seconds=seconds))
        seconds, counts = 0.0, {}

    task = columns.of_stage(stage).stop - 1
    if (gap := finish.ready - float(times.ends[task])) > 0:
        found.append(CriticalSegment(stage=stage, what="send", seconds=gap))
    while True:
        start = float(times.starts[task])
        work = WORKS[columns.work[task]].value
        counts[work] = counts.get(work, 0) + 1
        seconds += float(times.ends[task]) - start
        before = int(times.causes[task])
        if before == len(times.starts):
            break
        other = int(columns.stage[before])
        gap = start - float(times.ends[before])
        if other != stage or gap > 0:
            close()
            if gap > 0:
                found.append(CriticalSegment(stage=other, what="send", seconds=gap))
        stage, task = other, before
    close()
    return tuple(reversed(found))
