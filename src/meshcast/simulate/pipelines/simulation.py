"""A step of a pipeline in time: each stage runs its tasks in the schedule's order, when what they need has arrived.

For a task x on stage d, with y the task before it there and z what it waits for on a neighbouring stage,

    start(x) = max(end(y), arrival(z)),    arrival(z) = max(end(z), arrival of what was sent before) + send(z)

Messages between two stages in one direction go one after the other. With the order fixed there is nothing to choose, so
one pass over the tasks gives all times: O(stages * microbatches * chunks), whatever the number of devices of a stage.
Every time is a maximum of sums of durations, hence monotone in them.

A stage's reductions of gradients over its replicas start behind the last backward passes, in buckets (k of them, one for
each k-th of the pass t_B), one after the other, and its optimizer when they are done:

    end(reduction) = max(start(last B) + t_B / k + t_R, end(last B) + t_R / k)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshcast.errors import UsageError
from meshcast.simulate.pipelines.costs import StepCosts
from meshcast.simulate.pipelines.schedule import PipelineSchedule, Task, Work

NOTHING_BEFORE = (-1, -1)


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
        end: When its optimizer is done.
        reduce_s: Seconds of its reductions, hidden or not.
    """

    starts: Sequence[float] = field(repr=False)
    ends: Sequence[float] = field(repr=False)
    busy: float
    sending: float
    reducing: float
    idle: float
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
    run = _Simulation(schedule, costs)
    run.all_tasks()
    finishes = [run.finish(stage) for stage in range(schedule.stages)]
    first = [starts[0] if starts else 0.0 for starts in run.starts]
    if schedule.barrier:
        first = [0.0] * schedule.stages
    windows = [finish.end - start for finish, start in zip(finishes, first, strict=True)]
    duration = max(windows)
    stages = []
    for stage, finish in enumerate(finishes):
        busy = sum(e - s for s, e in zip(run.starts[stage], run.ends[stage], strict=True)) + finish.update
        sending = run.sending[stage]
        stages.append(
            StageRun(
                starts=run.starts[stage],
                ends=run.ends[stage],
                busy=busy,
                sending=sending,
                reducing=finish.exposed,
                idle=max(0.0, duration - busy - sending - finish.exposed),
                end=finish.end,
                reduce_s=finish.reduce_s,
            )
        )
    last = max(range(schedule.stages), key=lambda stage: windows[stage])
    return PipelineRun(
        schedule=schedule,
        stages=tuple(stages),
        duration=duration,
        critical_path=run.critical_path(last, finishes[last]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finish:
    """What comes after a stage's last task."""

    end: float
    update: float
    exposed: float  # seconds of reductions with nothing beside them
    reduce_s: float
    ready: float  # when the last task ended


class _Simulation:
    def __init__(self, schedule: PipelineSchedule, costs: StepCosts) -> None:
        self._schedule = schedule
        self._costs = costs
        count, positions = schedule.microbatches, schedule.positions
        self._arrived: dict[Work, list[list[float | None]]] = {  # at the position that waits for it
            work: [[None] * count for _ in range(positions + 1)] for work in Work
        }
        self._origin: dict[tuple[Work, int, int], tuple[int, int]] = {}
        self._channels: dict[tuple[int, int], float] = {}
        self._free = [0.0] * schedule.stages
        self._next = [0] * schedule.stages
        self.starts: list[list[float]] = [[] for _ in range(schedule.stages)]
        self.ends: list[list[float]] = [[] for _ in range(schedule.stages)]
        self.sending = [0.0] * schedule.stages
        self._caused: list[list[tuple[int, int]]] = [[] for _ in range(schedule.stages)]

    def all_tasks(self) -> None:
        """Every stage as far as it comes, until all are done."""
        waiting = set(range(self._schedule.stages))
        while waiting:
            moved = False
            for stage in sorted(waiting):
                moved |= self._advance(stage)
                if self._next[stage] == len(self._schedule.orders[stage]):
                    waiting.discard(stage)
            if not moved:
                raise self._stuck(sorted(waiting))

    def _advance(self, stage: int) -> bool:
        order, index = self._schedule.orders[stage], self._next[stage]
        began = index
        starts, ends, caused = self.starts[stage], self.ends[stage], self._caused[stage]
        while index < len(order):
            task = order[index]
            position = self._schedule.position(stage, task.chunk)
            needed = self._needs(task, position)
            if needed is None:
                break
            arrival, sent, cause = needed
            free = self._free[stage]
            start = arrival if arrival > free else free
            if start > free and (index or self._schedule.barrier):  # what of it is for the wire, not the other stage
                self.sending[stage] += start - max(free, min(sent, start))
            caused.append(cause if start > free else (stage, index - 1))
            end = start + self._seconds(task.work, position)
            starts.append(start)
            ends.append(end)
            self._free[stage] = self._send(stage, index, task, position, end)
            index += 1
        self._next[stage] = index
        return index > began

    def _needs(self, task: Task, position: int) -> tuple[float, float, tuple[int, int]] | None:
        """(when a task can start, when the sender was done, who that was); None while that is not known."""
        work, microbatch = task.work, task.microbatch
        if work is Work.FORWARD:
            if position == 0:
                return 0.0, 0.0, NOTHING_BEFORE
            return self._received(Work.FORWARD, position, microbatch)
        if work is Work.WEIGHT:
            return self._received(Work.WEIGHT, position, microbatch)
        own = self._received(Work.FORWARD, position + 1, microbatch, own=True)
        if position == self._schedule.positions - 1 or own is None:
            return own
        return self._received(Work.BACKWARD, position, microbatch)

    def _received(
        self, work: Work, position: int, microbatch: int, *, own: bool = False
    ) -> tuple[float, float, tuple[int, int]] | None:
        at = self._arrived[work][position][microbatch]
        if at is None:
            return None
        origin = self._origin[work, position, microbatch]
        sent = self.ends[origin[0]][origin[1]]
        return (sent, sent, origin) if own else (at, sent, origin)

    def _seconds(self, work: Work, position: int) -> float:
        part = self._costs.parts[position]
        if work is Work.FORWARD:
            return part.forward_s
        if work is Work.WEIGHT:
            return part.weight_s
        return part.backward_s if self._schedule.split else part.backward_s + part.weight_s

    def _send(self, stage: int, index: int, task: Task, position: int, end: float) -> float:
        """Sends a task's result on; says when the stage is free again."""
        work, microbatch, part = task.work, task.microbatch, self._costs.parts[position]
        free = end
        if work is Work.FORWARD:
            free = self._message(work, stage, index, position + 1, microbatch, end, part.forward_send_s, position + 1)
        elif work is Work.BACKWARD:
            if position > 0:
                before = position - 1
                free = self._message(work, stage, index, before, microbatch, end, part.backward_send_s, before)
            self._note(Work.WEIGHT, position, microbatch, end, (stage, index))
        return free

    def _message(
        self, work: Work, stage: int, index: int, slot: int, microbatch: int, end: float, seconds: float, to: int
    ) -> float:
        if to >= self._schedule.positions or seconds == 0.0:
            self._note(work, slot, microbatch, end, (stage, index))
            return end
        channel = (stage, self._schedule.place(to)[0])
        arrival = end if channel[0] == channel[1] else max(end, self._channels.get(channel, 0.0)) + seconds
        self._channels[channel] = arrival
        self._note(work, slot, microbatch, arrival, (stage, index))
        if self._costs.overlap_sends:
            return end
        self.sending[stage] += arrival - end
        return arrival

    def _note(self, work: Work, slot: int, microbatch: int, at: float, origin: tuple[int, int]) -> None:
        self._arrived[work][slot][microbatch] = at
        self._origin[work, slot, microbatch] = origin

    def _stuck(self, waiting: list[int]) -> UsageError:
        """Who waits for what, when nobody can go on."""
        said = []
        for stage in waiting[:6]:
            task = self._schedule.orders[stage][self._next[stage]]
            position = self._schedule.position(stage, task.chunk)
            if task.work is Work.FORWARD:
                holder, needed = self._schedule.place(position - 1), Task(Work.FORWARD, task.microbatch)
            elif task.work is Work.WEIGHT:
                holder, needed = (stage, task.chunk), Task(Work.BACKWARD, task.microbatch)
            elif self._arrived[Work.FORWARD][position + 1][task.microbatch] is None:
                holder, needed = (stage, task.chunk), Task(Work.FORWARD, task.microbatch)
            else:
                holder, needed = self._schedule.place(position + 1), Task(Work.BACKWARD, task.microbatch)
            said.append(f"stage {stage} at {task} waits for {needed._replace(chunk=holder[1])} of stage {holder[0]}")
        return UsageError(
            f"the schedule {self._schedule.name!r} deadlocks: " + "; ".join(said),
            where="schedule",
            fix="order the tasks so that no stages wait for each other in a circle",
        )

    def finish(self, stage: int) -> _Finish:
        """The reductions and the optimizer of a stage."""
        starts, ends, order = self.starts[stage], self.ends[stage], self._schedule.orders[stage]
        ready = self._free[stage]
        update = self._costs.update_s[stage] if self._costs.update_s else 0.0
        gradient = Work.WEIGHT if self._schedule.split else Work.BACKWARD
        last = {task.chunk: index for index, task in enumerate(order) if task.work is gradient}
        channel, total = 0.0, 0.0
        for chunk, index in sorted(last.items(), key=lambda item: item[1]):
            seconds = self._costs.parts[self._schedule.position(stage, chunk)].reduce_s
            if not seconds:
                continue
            total += seconds
            buckets = self._costs.buckets
            if buckets == 0:
                channel = max(channel, ready) + seconds
                continue
            first = starts[index] + (ends[index] - starts[index]) / buckets
            channel = max(max(channel, first) + seconds, ends[index] + seconds / buckets)
        reduced = max(ready, channel)
        return _Finish(end=reduced + update, update=update, exposed=reduced - ready, reduce_s=total, ready=ready)

    def critical_path(self, stage: int, finish: _Finish) -> tuple[CriticalSegment, ...]:
        """Back from the end of the step to its start, each time to what came last."""
        found: list[CriticalSegment] = []
        if finish.update:
            found.append(CriticalSegment(stage=stage, what="optimizer", seconds=finish.update))
        if finish.exposed:
            found.append(CriticalSegment(stage=stage, what="gradient reduction", seconds=finish.exposed))
        index = len(self.starts[stage]) - 1
        counts: dict[str, int] = {}
        seconds = 0.0

        def close() -> None:
            nonlocal seconds, counts
            if counts:
                what = " + ".join(f"{count} {work}" for work, count in sorted(counts.items()))
                found.append(CriticalSegment(stage=stage, what=what, seconds=seconds))
            seconds, counts = 0.0, {}

        if index >= 0 and finish.ready > self.ends[stage][index]:
            found.append(CriticalSegment(stage=stage, what="send", seconds=finish.ready - self.ends[stage][index]))
        while index >= 0:
            start, end = self.starts[stage][index], self.ends[stage][index]
            work = self._schedule.orders[stage][index].work.value
            counts[work] = counts.get(work, 0) + 1
            seconds += end - start
            other, before = self._caused[stage][index]
            if before < 0:
                break
            gap = start - self.ends[other][before]
            if other != stage or gap > 0:
                close()
                if gap > 0:
                    found.append(CriticalSegment(stage=other, what="send", seconds=gap))
            stage, index = other, before
        close()
        return tuple(reversed(found))
