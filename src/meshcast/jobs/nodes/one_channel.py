"""A pipeline's step with one communication under way on each rank at a time, as ASTRA-sim has it: `--channels 1`.

Sends to other stages, collectives of the stages' programs and reductions of gradients then take turns, in the order in which
they are ready and among those of the lowest number; receives hold nothing (`jobs.traced.replay`). What waits for what is no
longer a matter of tasks alone, so every rank's nodes are replayed. The step is laid out as that of `simulate.pipelines` is;
time by which a task takes longer than undisturbed counts as waiting for messages.
"""

from __future__ import annotations

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.jobs.nodes.flattening import Detail
from meshcast.jobs.nodes.pipelines import StageBody, stage_bodies
from meshcast.jobs.nodes.replaying import replayed
from meshcast.jobs.pipeline.costs import step_costs
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.step import StepParts
from meshcast.simulate import Columns, Finish, PipelineRun, Seconds, TaskTimes, columns_of, run_of

SAME = 1e-12  # seconds; below, times differ by rounding


def one_channel_run(pipeline: Pipeline, step: StepParts, *, unroll: bool = True) -> PipelineRun:
    """The step in time.

    Args:
        pipeline: The pipeline.
        step: Its parts on their hardware.
        unroll: Whether loops run turn by turn; else all of a collective's turns hold the channel at once.

    Raises:
        UnsupportedError: Passes run in pairs.
    """
    if any(estimate.paired_s for estimate in step.estimates):
        raise UnsupportedError(
            "passes that run in pairs have a time together, but no order in which their messages would take turns on one "
            "channel", where="--channels 1 --overlap paired-passes", fix="leave one of them out",
        )  # fmt: skip
    groups, stages = stage_bodies(pipeline, step, Detail(unroll=unroll, memory=False))
    classes = [found for stage in stages for found in stage.classes(groups)]
    job, run = replayed(pipeline.name, classes, groups, shared=True)
    columns = columns_of(step.schedule)
    # A stage's ranks that take no part in some collective have other nodes: the times are those of the ones with all.
    rows = [_fullest(job.of_rank[stage.ranks], run.ends, len(stage.body)) for stage in stages]
    times = _times(columns, step, stages, rows)
    return run_of(step.schedule, columns, times, _finishes(pipeline, step, stages, rows))


def _fullest(classes: np.ndarray[tuple[int], np.dtype[np.int64]], ends: tuple[list[float], ...], nodes: int) -> Seconds:
    """When the nodes of a stage end, on the ranks that have all of them and are done last."""
    whole = [ends[number] for number in np.unique(classes).tolist() if len(ends[number]) == nodes]
    assert whole, "every stage has ranks that take part in all of its collectives"
    return np.array(max(whole, key=lambda each: max(each, default=0.0)))


def _latest(ends: Seconds, nodes: tuple[int, ...]) -> float:
    return float(ends[list(nodes)].max()) if nodes else 0.0


def _times(columns: Columns, step: StepParts, stages: tuple[StageBody, ...], rows: list[Seconds]) -> TaskTimes:
    schedule = step.schedule
    tasks = [(stage, task) for stage, each in enumerate(stages) for task in each.tasks]
    starts = np.array([_latest(rows[stage], task.entry) for stage, task in tasks])
    ends = np.array([_latest(rows[stage], task.made) for stage, task in tasks])
    taken = np.array([task.seconds for _, task in tasks])
    total = len(tasks)
    before = np.arange(total) - 1
    firsts = columns.bounds[:-1][np.diff(columns.bounds) > 0]
    before[firsts] = total
    free = np.append(ends, 0.0)[before]
    waited = starts > free + SAME
    sent = np.append(ends, 0.0)[columns.needs]
    on_wire = np.where(waited, starts - np.maximum(free, np.minimum(sent, starts)), 0.0)
    if not schedule.barrier:
        on_wire[firsts] = 0.0
    held, sending = np.zeros(schedule.stages), np.zeros(schedule.stages)
    np.add.at(held, columns.stage, np.maximum(0.0, ends - starts - taken))
    np.add.at(sending, columns.stage, on_wire)
    return TaskTimes(
        starts=starts,
        ends=ends,
        causes=np.where(waited, columns.needs, before),
        free=np.array([_latest(row, stage.passed) for row, stage in zip(rows, stages, strict=True)]),
        sending=sending + held,
        held=held,
    )


def _finishes(pipeline: Pipeline, step: StepParts, stages: tuple[StageBody, ...], rows: list[Seconds]) -> list[Finish]:
    """What comes behind the tasks of each stage."""
    costs, schedule = step_costs(pipeline, step), step.schedule
    ready = [_latest(row, stage.passed) for row, stage in zip(rows, stages, strict=True)]
    reduced = [max(at, _latest(row, stage.reduced)) for at, row, stage in zip(ready, rows, stages, strict=True)]
    ends = (0, schedule.place(schedule.positions - 1)[0]) if costs.tied_s else ()
    latest = max(ends, key=lambda stage: reduced[stage], default=0)
    found = []
    for stage, row in enumerate(rows):
        tied = costs.tied_s if stage in ends else 0.0
        chunks = [schedule.position(stage, chunk) for chunk in range(schedule.chunks)]
        found.append(
            Finish(
                end=float(row.max(initial=0.0)),
                update=tied + (costs.update_s[stage] if costs.update_s else 0.0),
                exposed=reduced[stage] - ready[stage],
                reduce_s=sum(costs.parts[position].reduce_s for position in chunks),
                ready=ready[stage],
                tied=tied,
                behind=latest if tied and reduced[latest] > reduced[stage] else None,
            )
        )
    return found
