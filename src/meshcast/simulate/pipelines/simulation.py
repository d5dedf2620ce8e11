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

from dataclasses import replace

import numpy as np

from meshcast.base import UsageError
from meshcast.simulate.pipelines.columns import BACKWARD, FORWARD, WEIGHT, WORKS, Columns, columns_of
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
    return TaskTimes(
        starts=starts,
        ends=ends,
        causes=np.where(waited, columns.needs, before),
        free=free,
        sending=sending,
        held=np.zeros(schedule.stages),
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


def _finish(columns: Columns, times: TaskTimes, schedule: PipelineSchedule, costs: StepCosts, stage: int) -> Finish:
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
