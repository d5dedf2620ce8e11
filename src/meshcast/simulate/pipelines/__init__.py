"""Pipelines of stages: schedules, their simulation in time, and what the stages have to keep."""

from functools import lru_cache

from meshcast.base import UsageError, nearest
from meshcast.simulate.pipelines.costs import PartCosts as PartCosts
from meshcast.simulate.pipelines.costs import StepCosts as StepCosts
from meshcast.simulate.pipelines.gpipe import gpipe as gpipe
from meshcast.simulate.pipelines.memory import StageMemory as StageMemory
from meshcast.simulate.pipelines.memory import stage_memory as stage_memory
from meshcast.simulate.pipelines.one_forward_one_backward import interleaved as interleaved
from meshcast.simulate.pipelines.one_forward_one_backward import one_forward_one_backward as one_forward_one_backward
from meshcast.simulate.pipelines.runs import CriticalSegment as CriticalSegment
from meshcast.simulate.pipelines.runs import PipelineRun as PipelineRun
from meshcast.simulate.pipelines.runs import StageRun as StageRun
from meshcast.simulate.pipelines.schedule import Generator as Generator
from meshcast.simulate.pipelines.schedule import PassWork as PassWork
from meshcast.simulate.pipelines.schedule import PipelineSchedule as PipelineSchedule
from meshcast.simulate.pipelines.schedule import Task as Task
from meshcast.simulate.pipelines.schedule import checked as checked
from meshcast.simulate.pipelines.simulation import simulate_pipeline as simulate_pipeline
from meshcast.simulate.pipelines.zero_bubble import zero_bubble_h1 as zero_bubble_h1
from meshcast.simulate.pipelines.zero_bubble import zero_bubble_h2 as zero_bubble_h2

SCHEDULES: dict[str, Generator] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "zb-h1": zero_bubble_h1,
    "zb-h2": zero_bubble_h2,
}


@lru_cache(maxsize=32)
def make_schedule(name: str, *, stages: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """A schedule by its name; the same question has the same answer, which is kept.

    Raises:
        UsageError: There is none of that name, or it cannot have these counts.
    """
    if name not in SCHEDULES:
        raise UsageError(f"no pipeline schedule {name!r}", where="schedule", fix=nearest(name, SCHEDULES))
    return SCHEDULES[name](stages, microbatches, chunks)
