"""The pipeline's schedule as a picture: what every stage works on when, and a row of figures for each."""

from __future__ import annotations

from typing import TypedDict

from meshcast.report.choosing import evenly
from meshcast.report.subject import Subject
from meshcast.report.tables import Table, column, table
from meshcast.report.timeline import NANOSECONDS
from meshcast.simulate import PipelineRun

MOST_TASKS, MOST_ROWS = 24_000, 128
WORKS = ("F", "B", "W")


class StageRow(TypedDict):
    """A stage: its tasks as start, duration (in nanoseconds), work, microbatch and chunk; when it reduces and updates."""

    stage: int
    tasks: list[int]
    reduce: list[int]
    update: list[int]


class PipelineSection(TypedDict):
    """The section; no rows where it does not fit, and has no times."""

    schedule: str
    microbatches: int
    chunks: int
    bubble: float | None
    step_ns: int
    rows: list[StageRow]
    stages: Table
    note: str


def pipeline_section(subject: Subject) -> PipelineSection | None:
    """The section; None of what is no pipeline."""
    share = subject.prediction.pipeline
    if share is None:
        return None
    run = next((scene.pipeline for scene in subject.scenes if scene.pipeline is not None), None)
    stages = table(
        "stages", "Stage by stage",
        (
            column("stage", "count", "stage"), column("parts"), column("busy", "s", "busy"), column("exposed", "s", "exposed"),
            column("idle", "s", "idle"), column("idle of step", "share", "bubble"), column("in flight", "count", "in_flight"),
            column("peak memory", "B", "peak_memory"),
        ),
        (
            [
                each.stage, each.parts, each.busy_s, each.exposed_communication_s, each.idle_s, each.idle_share, each.in_flight,
                each.memory_bytes.get("peak"),
            ]
            for each in share.stages
        ),
    )  # fmt: skip
    rows, note = _rows(run) if run is not None else ([], "")
    return {
        "schedule": share.schedule, "microbatches": share.microbatches, "chunks": share.virtual_stages, "bubble": share.bubble,
        "step_ns": round(run.makespan * NANOSECONDS) if run is not None else 0, "rows": rows, "stages": stages, "note": note,
    }  # fmt: skip


def _rows(run: PipelineRun) -> tuple[list[StageRow], str]:
    """The stages that are drawn: as many as the picture has room for, evenly from the first to the last."""
    count = len(run.stages)
    tasks = max(1, max(len(stage.starts) for stage in run.stages))
    room = max(1, min(MOST_ROWS, MOST_TASKS // tasks))
    rows = [_row(run, stage) for stage in evenly(count, room)]
    return rows, "" if len(rows) == count else f"{len(rows)} of {count} stages are drawn"


def _row(run: PipelineRun, number: int) -> StageRow:
    stage, order = run.stages[number], run.schedule.orders[number]
    tasks: list[int] = []
    for task, start, end in zip(order, stage.starts, stage.ends, strict=True):
        at = round(start * NANOSECONDS)
        tasks += [at, round(end * NANOSECONDS) - at, WORKS.index(task.work.value), task.microbatch, task.chunk]
    last = stage.ends[-1] if len(stage.ends) else 0.0
    reduced = last + stage.reducing
    return {
        "stage": number,
        "tasks": tasks,
        "reduce": [round(last * NANOSECONDS), round(stage.reducing * NANOSECONDS)],
        "update": [round(reduced * NANOSECONDS), max(0, round((stage.end - reduced) * NANOSECONDS))],
    }
