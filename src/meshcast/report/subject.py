"""`Subject`: what a report is of: a prediction, the job behind it, and its step as scenes that can be drawn and added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meshcast.base import MeshcastError, UnsupportedError
from meshcast.hardware import Cluster
from meshcast.jobs import Job, PipelineJob, ProgramJob, ServingJob, StepParts, TraceJob
from meshcast.report.source_lines import nearest_line, source_lines
from meshcast.report.work import RankWork, pipeline_work, program_work
from meshcast.results import Prediction
from meshcast.simulate import PipelineRun
from meshcast.traces import (
    JobTimeline,
    Understanding,
    pipeline_timeline,
    program_timeline,
    recorded_timeline,
    understood,
)

MOST_UNROLLED = 60_000  # slices up to which every turn of a loop is drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """A step that can be drawn: that of a job, or one of the passes that answer requests.

    Attributes:
        name: What it is called.
        times: How often it runs, in words; empty where it is the step itself.
        work: What its ranks run.
        draw: Its timeline; with every turn of loops, without, or as long as those are not too many.
        pipeline: Its step as a pipeline's; None of a program.
        parts: The parts of a pipeline; None of a program.
        lines: By the names of ops, the lines of the program that they come from.
        recorded: What was recorded of it, of a job of traces with durations.
    """

    name: str
    times: str
    work: tuple[RankWork, ...]
    draw: Callable[[bool | None], JobTimeline]
    pipeline: PipelineRun | None = None
    parts: StepParts | None = None
    lines: Mapping[str, str] = field(default_factory=dict)
    recorded: Understanding | None = None

    @cached_property
    def folded(self) -> JobTimeline:
        """Its timeline with one turn of a loop in place of all."""
        return self.draw(False)

    @cached_property
    def drawn(self) -> JobTimeline:
        """Its timeline with every turn of a loop, as long as those are not too many for a picture."""
        whole = self.draw(None)
        return whole if whole.slices <= MOST_UNROLLED else self.folded

    def line(self, location: str) -> str:
        """The lines that an op comes from, or its own name where none are known."""
        return nearest_line(self.lines, location) or location


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What a report is of.

    Attributes:
        prediction: The answer.
        job: What it is the answer of.
        scenes: Its steps; none where it has none, or where none can be drawn.
        not_drawn: Why there are none, where it runs all the same.
        recorded: Of a job of traces with durations, the step that was recorded.
        others: Predictions of the same in other fidelities.
        command: The command line that makes the report.
    """

    prediction: Prediction
    job: Job
    scenes: tuple[Scene, ...] = ()
    not_drawn: str = ""
    recorded: Scene | None = None
    others: tuple[tuple[str, Prediction | MeshcastError], ...] = ()
    command: str = ""

    @cached_property
    def lines(self) -> Mapping[str, str]:
        """By the names of ops, the lines of its program that they come from; of a program also where nothing is drawn."""
        if self.scenes:
            return self.scenes[0].lines
        return source_lines(self.job.program) if isinstance(self.job, ProgramJob) else {}

    @property
    def drawn(self) -> tuple[Scene, ...]:
        """Steps that there is a timeline of."""
        return self.scenes or ((self.recorded,) if self.recorded is not None else ())

    @property
    def cluster(self) -> Cluster:
        """The hardware."""
        return self.job.cluster


def subject_of(
    prediction: Prediction,
    job: Job,
    *,
    others: tuple[tuple[str, Prediction | MeshcastError], ...] = (),
    command: str = "",
) -> Subject:
    """A prediction with its step as scenes; what runs and cannot be drawn says why."""
    scenes: tuple[Scene, ...] = ()
    recorded = _recorded(job) if isinstance(job, TraceJob) else None
    why = ""
    if prediction.timed is not None:
        try:
            scenes = _scenes(job)
        except MeshcastError as error:
            why = str(error)
        if not scenes and not why and recorded is None:
            why = "the traces have no durations, so that nothing says when each of their nodes ran"
    return Subject(
        prediction=prediction, job=job, scenes=scenes, not_drawn=why, recorded=recorded, others=others, command=command
    )


def _recorded(job: TraceJob) -> Scene | None:
    """What was recorded, replayed; None where the traces have no durations."""
    try:
        found = understood(job.files)
    except UnsupportedError:
        return None
    timeline = recorded_timeline(found)
    return Scene(name="recorded", times="", work=(), draw=lambda _unroll: timeline, recorded=found)


def _scenes(job: Job) -> tuple[Scene, ...]:
    match job:
        case ProgramJob():
            return (_program("step", "", job),)
        case PipelineJob():
            pipeline, step, run = job.assembled()
            scene = Scene(
                name="step", times="", work=pipeline_work(pipeline, step), pipeline=run, parts=step,
                lines=source_lines(*job.programs()),
                draw=lambda unroll: pipeline_timeline(pipeline, step, run, unroll),
            )  # fmt: skip
            scene.folded  # noqa: B018  # what cannot be drawn says so here
            return (scene,)
        case ServingJob():
            return tuple(_program(name, each.described, one) for name, each, one in reversed(list(job.passes.named())))
        case _:
            return ()


def _program(name: str, times: str, job: ProgramJob) -> Scene:
    run = job.run
    scene = Scene(
        name=name, times=times, work=program_work(run), draw=lambda unroll: program_timeline(run, unroll),
        lines=source_lines(job.program),
    )  # fmt: skip
    scene.folded  # noqa: B018  # what cannot be drawn says so here
    return scene
