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

Costs may be columns (`base.column`), those of several points of a sweep: then every array has a place more for each point, and
all points go through the waves at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from meshcast.base import PartedError, UsageError, larger, number_of, stacked
from meshcast.simulate.pipelines.columns import BACKWARD, WEIGHT, WORKS, Columns, columns_of
from meshcast.simulate.pipelines.costs import StepCosts
from meshcast.simulate.pipelines.runs import Finish, PipelineRun, Seconds, TaskTimes, run_of
from meshcast.simulate.pipelines.schedule import PipelineSchedule


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
    return run_of(schedule, columns, times, finishes)


def _all_tasks(columns: Columns, schedule: PipelineSchedule, costs: StepCosts) -> TaskTimes:
    """All waves, one after the other."""
    taken, wire = _by_task(columns, schedule, costs)
    # Messages of a stage to another have a channel; the last one is for all that send nothing, and always free.
    silent = schedule.stages * schedule.stages
    channel = np.where(_sends(wire), columns.stage * schedule.stages + columns.receiver, silent)
    total, many = len(taken), taken.shape[1:]
    busy_until = np.zeros((silent + 1, *many))
    free = np.zeros((schedule.stages, *many))
    starts, ends, idle_from = (np.zeros((total, *many)) for _ in range(3))
    arrivals = np.zeros((total + 1, *many))  # what is there from the start arrives at zero
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
    sent = np.append(ends, np.zeros((1, *many)), axis=0)[columns.needs]
    on_wire = np.where(waited, starts - np.maximum(idle_from, np.minimum(sent, starts)), 0.0)
    if not schedule.barrier:
        on_wire[firsts] = 0.0
    if not overlap:
        on_wire += arrivals[:-1] - ends
    sending = np.zeros((schedule.stages, *many))
    np.add.at(sending, columns.stage, on_wire)
    return TaskTimes(
        starts=starts,
        ends=ends,
        causes=np.where(waited, _each(columns.needs, many), _each(before, many)),
        free=free,
        sending=sending,
        held=np.zeros(schedule.stages),
    )


def _by_task(columns: Columns, schedule: PipelineSchedule, costs: StepCosts) -> tuple[Seconds, Seconds]:
    """Seconds of every task, and of the message that it sends; zero where it sends none."""
    parts = costs.parts
    rows = [  # in the order of `WORKS`, and then again for what each sends
        [part.forward_s for part in parts],
        [part.backward_s + (0.0 if schedule.split else part.weight_s) for part in parts],
        [part.weight_s for part in parts],
        [part.forward_send_s for part in parts],
        [part.backward_send_s for part in parts],
        [0.0] * len(parts),
    ]
    found = stacked([number for row in rows for number in row])
    taken, wire = found.reshape(2, len(WORKS), len(parts), *found.shape[1:])
    at = columns.work, columns.position
    return taken[at], np.where(_each(columns.receiver >= 0, found.shape[1:]), wire[at], 0.0)


def _each(column: Any, many: tuple[int, ...]) -> Any:
    """A column of tasks that is the same at all points."""
    return column[:, None] if many else column


def _sends(wire: Seconds) -> Any:
    """Which tasks send something.

    Raises:
        PartedError: Some send at some points only.
    """
    if wire.ndim == 1:
        return wire > 0
    sends = wire > 0
    if (sends.any(axis=1) != sends.all(axis=1)).any():
        raise PartedError((sends == sends[:, :1]).all(axis=0))
    return sends[:, 0]


def _finish(columns: Columns, times: TaskTimes, schedule: PipelineSchedule, costs: StepCosts, stage: int) -> Finish:
    """The reductions and the optimizer of a stage."""
    mine = columns.of_stage(stage)
    ready = number_of(times.free[stage])
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
            channel = larger(channel, ready) + seconds
            continue
        start, end = number_of(times.starts[task]), number_of(times.ends[task])
        first = start + (end - start) / costs.buckets
        channel = larger(larger(channel, first) + seconds, end + seconds / costs.buckets)
    reduced = larger(ready, channel)
    return Finish(end=reduced + update, update=update, exposed=reduced - ready, reduce_s=total, ready=ready)


def _tie(finishes: list[Finish], stages: tuple[int, int], seconds: float) -> None:
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
