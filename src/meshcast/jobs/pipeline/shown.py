"""A pipeline as an object for programs: its stages with what they do when, and its parts with the programs that they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshcast.jobs.pipeline.parts import PROGRAMS
from meshcast.jobs.program.tables import shown_json

if TYPE_CHECKING:
    from meshcast.jobs.pipeline.job import PipelineJob
    from meshcast.jobs.program.run import Run
    from meshcast.simulate import PipelineRun

PIPELINE_SCHEMA = "meshcast.pipeline/1"


def part_programs(job: PipelineJob) -> Iterator[tuple[str, str, Run]]:
    """The programs of a pipeline: the name of a part, `forward` or another pass, the program on the hardware of a stage."""
    for part in job.pipeline.parts:
        for name in PROGRAMS:
            if (target := getattr(part, name)) is not None:
                yield part.name, name, job.prepared(target)


def pipeline_json(job: PipelineJob, *, kernels: bool) -> dict[str, Any]:
    """A pipeline as an object of schema `meshcast.pipeline/1`; times are seconds from the start of the step.

    Args:
        job: The pipeline on its hardware.
        kernels: Whether programs are told by their kernels (`meshcast.kernels/1`) or by their ops (`meshcast.workload/1`).
    """
    step, pipeline = job.run, job.pipeline
    programs: dict[str, dict[str, Any]] = {part.name: {} for part in pipeline.parts}
    for part, name, run in part_programs(job):
        programs[part][name] = shown_json(run, kernels=kernels)
    return {
        "schema": PIPELINE_SCHEMA,
        "name": pipeline.name,
        "on": {"device": job.device.name, "cluster": job.hardware.name if pipeline.devices > 1 else None},
        "devices": pipeline.devices,
        "mesh": pipeline.mesh.sizes,
        "schedule": step.schedule.name,
        "microbatches": step.schedule.microbatches,
        "virtual_stages": step.schedule.chunks,
        "step_time_s": step.duration,
        "bubble": step.bubble,
        "stages": [_stage_json(job, step, stage) for stage in range(len(step.stages))],
        "parts": [{"name": part.name, "count": part.count, "programs": programs[part.name]} for part in pipeline.parts],
    }


def _stage_json(job: PipelineJob, step: PipelineRun, stage: int) -> dict[str, Any]:
    """A stage: its devices, the parts of the model that it holds, and its tasks in order."""
    pipeline, schedule, timed = job.pipeline, step.schedule, step.stages[stage]
    of_position = [part.name for part in pipeline.parts for _ in range(part.count)]
    held = [schedule.position(stage, chunk) for chunk in range(schedule.chunks)]
    return {
        "stage": stage,
        "first_device": stage * pipeline.mesh.size,
        "devices": pipeline.mesh.size,
        "parts": [{"position": position, "part": of_position[position]} for position in held],
        "busy_s": timed.busy,
        "idle_s": timed.idle,
        "end_s": timed.end,
        "tasks": [
            {
                "work": task.work.value,
                "microbatch": task.microbatch,
                "position": held[task.chunk],
                "start_s": float(start),
                "end_s": float(end),
            }
            for task, start, end in zip(schedule.orders[stage], timed.starts, timed.ends, strict=True)
        ],
    }
