"""A step of a pipeline in time: each stage runs its tasks in the schedule's order, when what they need has arrived.

For a task x on stage d, with y the task before it there and z what it waits for on a neighbouring stage,

    start(x) = max(end(y), arrival(z)),    arrival(z) = max(end(z), arrival of what was sent before) + send(z)

Messages between two stages in one direction go one after the other. With the order fixed there is nothing to choose, so
one pass over the tasks gives all times: O(stages * microbatches * chunks), whatever the number of devices of a stage. The
pass goes by waves (`columns`), one task of every stage at a time.
Every time is a maximum of sums of durations, hence monotone in them.

A stage's reductions of gradients over its replicas start behind the last backward passes, in buckets (k of them, one for
each k-th of the pass t_B), one after the other, and its optimizer when they are done:

    end(reduction) = max(start(last B) + t_B / k + t_R, end(last B) + t_R / k)

What the first and the last position share is summed between these two, when both stages have come so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from meshcast.errors import UsageError
from meshcast.simulate.pipelines.columns import BACKWARD, FORWARD, WEIGHT, WORKS, Columns, columns_of
from meshcast.simulate.pipelines.costs import StepCosts
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


def simulate_pipeline(schedule: PipelineSchedule, costs: StepCosts) -> PipelineRun:
    """The step of a pipeline in time.

    Raises:
        UsageError: The orders wait for each other in a circle.
    """
    if len(costs.parts) != schedule.positions:
        raise UsageError(
            f"{len(costs.parts)} parts for {schedule.stages} stages of {schedule.chunks} chunks",
            where="stages",
            fix=f"give {schedule.positions}",
        )
    columns = columns_of(schedule)
    times = _all_tasks(columns, schedule, costs)
    finishes = [_finish(columns, times, schedule, costs, stage) for stage in range(schedule.stages)]
    if costs.tied_s:
        _tie(finishes, (0, schedule.place(schedule.positions - 1)[0]), costs.tied_s)
    slices = [columns.of_stage(stage) for stage in range(schedule.stages)]
    first = [times.starts[mine.start] if mine.stop > mine.start else 0.0 for mine in slices]
    if schedule.barrier:
        first = [0.0] * schedule.stages
    windows = [finish.end - float(start) for finish, start in zip(finishes, first, strict=True)]
    duration = max(windows)
    stages = []
    for stage, finish in enumerate(finishes):
        starts, ends = times.starts[slices[stage]], times.ends[slices[stage]]
        busy = float((ends - starts).sum()) + finish.update
        sending = float(times.sending[stage])
        stages.append(
            StageRun(
                starts=starts.tolist(),
                ends=ends.tolist(),
                busy=busy,
                sending=sending,
                reducing=finish.exposed,
                idle=max(0.0, duration - busy - sending - finish.exposed),
                ready=finish.ready,
                end=finish.end,
                reduce_s=finish.reduce_s,
            )
        )
    last = max(range(schedule.stages), key=lambda stage: windows[stage])
    return PipelineRun(
        schedule=schedule,
        stages=tuple(stages),
        duration=duration,
        critical_path=_critical_path(columns, times, last, finishes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """When every task starts and ends.

    Attributes:
        starts: By task.
        ends: By task.
        causes: The task whose end or message a task's start waited for: its own stage's one before, or another;
            the number of tasks where it waited for nothing.
        free: When each stage is free after its last task.
        sending: Seconds that each stage waits for messages on their way.
    """

    starts: Seconds
    ends: Seconds
    causes: NDArray[np.int64]
    free: Seconds
    sending: Seconds


def _all_tasks(columns: Columns, schedule: PipelineSchedule, costs: StepCosts) -> _Times:
    """All waves, one after the other."""
    taken, wire = _by_task(columns, schedule, costs)
    # Messages of a stage to another have a channel; the last one is for all that send nothing, and always free.
    silent = schedule.stages * schedule.stages
    channel = np.where(wire > 0, columns.stage * schedule.stages + columns.receiver, silent)
    busy_until = np.zeros(silent + 1)
    free = np.zeros(schedule.stages)
    total = len(taken)
    starts, ends, idle_from = np.zeros(total), np.zeros(total), np.zeros(total)
    arrivals = np.zeros(total + 1)  # what is there from the start arrives at zero
    overlap = costs.overlap_sends
    for wave in columns.waves:
        stage = columns.stage[wave]
        ready = free[stage]
        start = np.maximum(ready, arrivals[columns.needs[wave]])
        end = start + taken[wave]
        used = channel[wave]
        arrival = np.maximum(end, busy_until[used]) + wire[wave]
        busy_until[used] = arrival
        busy_until[silent] = 0.0
        idle_from[wave], starts[wave], ends[wave], arrivals[wave] = ready, start, end, arrival
        free[stage] = end if overlap else arrival
    waited = starts > idle_from
    firsts = columns.bounds[:-1][np.diff(columns.bounds) > 0]
    before = np.arange(total) - 1
    before[firsts] = total
    # Of a wait, what is for the wire and not for the other stage. A first task's is none where steps follow each other.
    sent = np.append(ends, 0.0)[columns.needs]
    on_wire = np.where(waited, starts - np.maximum(idle_from, np.minimum(sent, starts)), 0.0)
    if not schedule.barrier:
        on_wire[firsts] = 0.0
    if not overlap:
        on_wire += arrivals[:-1] - ends
    sending = np.zeros(schedule.stages)
    np.add.at(sending, columns.stage, on_wire)
    return _Times(
        starts=starts,
        ends=ends,
        causes=np.where(waited, columns.needs, before),
        free=free,
        sending=sending,
    )


def _by_task(columns: Columns, schedule: PipelineSchedule, costs: StepCosts) -> tuple[Seconds, Seconds]:
    """Seconds of every task, and of the message that it sends; zero where it sends none."""
    parts = costs.parts
    taken = np.zeros((len(WORKS), len(parts)))
    taken[FORWARD] = [part.forward_s for part in parts]
    taken[BACKWARD] = [part.backward_s + (0.0 if schedule.split else part.weight_s) for part in parts]
    taken[WEIGHT] = [part.weight_s for part in parts]
    wire = np.zeros_like(taken)
    wire[FORWARD] = [part.forward_send_s for part in parts]
    wire[BACKWARD] = [part.backward_send_s for part in parts]
    at = columns.work, columns.position
    return taken[at], np.where(columns.receiver >= 0, wire[at], 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finish:
    """What comes after a stage's last task."""

    end: float
    update: float
    exposed: float  # seconds of reductions with nothing beside them
    reduce_s: float
    ready: float  # when the last task ended
    tied: float = 0.0  # seconds of the sum of shared gradients, which `update` holds, too
    behind: int | None = None  # the stage that this sum waited for, if that is another one


def _finish(columns: Columns, times: _Times, schedule: PipelineSchedule, costs: StepCosts, stage: int) -> _Finish:
    """The reductions and the optimizer of a stage."""
    mine = columns.of_stage(stage)
    ready = float(times.free[stage])
    update = costs.update_s[stage] if costs.update_s else 0.0
    gradients = np.flatnonzero(columns.work[mine] == (WEIGHT if schedule.split else BACKWARD)) + mine.start
    last = {int(chunk): int(task) for chunk, task in zip(columns.chunk[gradients], gradients, strict=True)}
    channel, total = 0.0, 0.0
    for chunk, task in sorted(last.items(), key=lambda item: item[1]):
        seconds = costs.parts[schedule.position(stage, chunk)].reduce_s
        if not seconds:
            continue
        total += seconds
        if costs.buckets == 0:
            channel = max(channel, ready) + seconds
            continue
        start, end = float(times.starts[task]), float(times.ends[task])
        first = start + (end - start) / costs.buckets
        channel = max(max(channel, first) + seconds, end + seconds / costs.buckets)
    reduced = max(ready, channel)
    return _Finish(end=reduced + update, update=update, exposed=reduced - ready, reduce_s=total, ready=ready)


def _tie(finishes: list[_Finish], stages: tuple[int, int], seconds: float) -> None:
    """Puts a sum that two stages make together before their optimizers."""
    reduced = {stage: finishes[stage].ready + finishes[stage].exposed for stage in stages}
    latest = max(stages, key=lambda stage: reduced[stage])
    for stage in reduced:
        update = finishes[stage].update
        finishes[stage] = replace(
            finishes[stage],
            end=reduced[latest] + seconds + update,
            update=seconds + update,
            tied=seconds,
            behind=latest if reduced[latest] > reduced[stage] else None,
        )


def _critical_path(
    columns: Columns, times: _Times, stage: int, finishes: Sequence[_Finish]
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
