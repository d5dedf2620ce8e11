"""What is asked for becomes a job: a target is looked at once, and a plan carried out once.

`job_source` says what a target is: a model, a program, a pipeline or traces. `resolve_job` makes a job of it and of the options,
a `ProgramJob`, `PipelineJob`, `ServingJob` or `TraceJob`, on which every verb matches. The same source may be asked with other
options (levers, the cells of a comparison): what was read, run or captured of it before is there already.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from meshcast.base import KeptBeside, UsageError
from meshcast.hardware import Cluster, resolve
from meshcast.jobs.described import asked_of
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.job import PartJob, PipelineJob
from meshcast.jobs.pipeline.source import PipelineSource
from meshcast.jobs.planned import no_model, planned_model
from meshcast.jobs.planned.stacked import with_stack
from meshcast.jobs.program.job import ProgramJob
from meshcast.jobs.serving.job import ServingJob, asks_to_serve
from meshcast.jobs.stated.source import StatedSource
from meshcast.jobs.traced.job import TraceJob, TraceSource
from meshcast.options import OptionParts, Options, given_options
from meshcast.programs import ModelSource, ObjectSource, ProgramSource, Target, source_of
from meshcast.zoo import SERVE

PlainSource: TypeAlias = ProgramSource | PipelineSource | TraceSource
JobSource: TypeAlias = PlainSource | StatedSource
Job: TypeAlias = ProgramJob | PipelineJob | ServingJob | TraceJob


def job_source(target: Target | Pipeline) -> JobSource:
    """What a target is; no program is read or run for it yet, and of a .toml file its schema is looked at.

    Raises:
        InputError: A file is no configuration of Hugging Face's, or lacks a size.
        UnsupportedError: Its model, or a variant of it, is not in the zoo.
    """
    # Traces before models: a manifest of traces is a .json file as a configuration is.
    found = TraceSource.of(target) or StatedSource.of(target) or PipelineSource.of(target)
    return source_of(target) if found is None else found  # type: ignore[arg-type]  # no pipeline by now


def resolve_job(target: Target | Pipeline | JobSource, options: Options, *, cluster: Cluster | None = None) -> Job:
    """The job that a target and options make.

    Args:
        target: As `predict` takes it, or what `job_source` found it to be.
        options: Everything else that is asked for.
        cluster: The hardware of `options.on`, where somebody has looked it up already.

    Raises:
        UsageError: An option has a value that there is not, a plan is for something that is no model, or a mesh is given
            beside it.
        UnsupportedError: No such device or stack, or the plan asks for what the model or the device does not have.
        InfeasibleError: The plan does not divide the model, the batch or the devices.
    """
    given = with_stack(given_options(options))
    source = target if isinstance(target, JobSource) else job_source(target)
    if isinstance(source, StatedSource):
        with source.blamed(given):
            model, asked = as_asked(source, given)
            # A cluster that somebody has looked up is that of the options, which go before a file's where they name one.
            return resolve_job(model, asked, cluster=cluster if asked.on == options.on else None)
    given.check_choices()  # here for every kind of job, as soon as the options are whole
    if isinstance(source, TraceSource):
        return TraceJob(source=source, given=given, known=cluster)
    if given.run.durations != "auto":
        raise UsageError(
            "durations are recorded in traces, and this is no trace",
            where="--durations",
            fix="leave it out, or name the trace of a job",
        )
    if given.program.plan is not None and given.program.mesh is not None:
        raise UsageError("a plan makes the mesh itself", where="--mesh", fix="give --plan or --mesh")
    if cluster is None:
        cluster = resolve(given.on)
    match source:
        case ModelSource():
            return _of_model(source, given, cluster)
        case _ if given.program.plan is not None:
            raise no_model(source.called)
        case PipelineSource():
            return PipelineJob(
                source=source, given=given, options=given, cluster=cluster, part_job=_part_job(source, cluster)
            )
        case _:
            return ProgramJob(source=source, given=given, options=given, cluster=cluster)


def as_asked(source: JobSource, options: Options) -> tuple[PlainSource, Options]:
    """A source and options with what the file of a job says: of it the model; any other source as it is.

    Raises:
        InputError: The file does not follow its schema, or lacks something.
    """
    if not isinstance(source, StatedSource):
        return source, options
    name, asked = source.asked(options, _device_memory)
    return source_of(name), asked


def _device_memory(model: str, options: Options) -> float:
    """Bytes of a device that a model takes."""
    return float(resolve_job(source_of(model), options).predict().memory.peak)


def one_program(job: Job) -> ProgramJob:
    """The job of one program.

    Raises:
        UsageError: It has several, or none.
    """
    match job:
        case ProgramJob():
            return job
        case PipelineJob():
            raise UsageError(
                "a pipeline has several programs",
                where=job.source.where,
                fix="name one of them, or use predict, show or compare",
            )
        case ServingJob():
            raise job.builder.not_one_program(SERVE)
        case TraceJob():
            raise UsageError(
                "a trace is of a job that ran, and has no program",
                where=str(job.source.path),
                fix="name the program that it is of; predict, show and compare take traces",
            )
        case _:
            assert_never(job)


def _of_model(source: ModelSource, given: Options, cluster: Cluster) -> ProgramJob | PipelineJob | ServingJob:
    """A model as it is, under a plan, or serving."""
    if asks_to_serve(given):
        return ServingJob(
            builder=source.builder,
            given=given,
            cluster=cluster,
            pass_job=lambda options: one_program(resolve_job(source, options, cluster=cluster)),
        )
    asked = asked_of(source.builder, given, cluster.device)
    plan = asked.plan
    if plan is None:
        options = given.having(settings=asked.settings)
        return ProgramJob(source=source, given=given, options=options, cluster=cluster, asked=asked)
    planned = planned_model(
        source.builder, plan, settings=asked.settings, devices=given.devices, platform=cluster.device.platform
    )
    # What is saved where is no part of the program: its lowering says.
    offload = plan.offload == "activations"
    options = given.having(parts=_PLANNED.of(given.parts, offload, lambda: _without_plan(given, offload=offload)))
    if not isinstance(planned, Pipeline):
        made = ObjectSource(made=planned)
        return ProgramJob(source=made, given=given, options=options, cluster=cluster, asked=asked)
    stages = PipelineSource(given=planned)
    return PipelineJob(
        source=stages, given=given, options=options, cluster=cluster, asked=asked, part_job=_part_job(stages, cluster)
    )


_PLANNED: KeptBeside[OptionParts] = KeptBeside(512)  # of points that differ in their hardware alone


def _without_plan(given: Options, *, offload: bool) -> OptionParts:
    """The parts of options whose plan is in the program by now; what it offloads is said to lowering."""
    overlap: Any = given.lowering.overlap
    if offload:
        overlap = ",".join(filter(None, (overlap.text, "offload")))
    return given.having(plan=None, settings={}, attention="plain", overlap=overlap).parts


def _part_job(source: PipelineSource, cluster: Cluster) -> PartJob:
    """How the programs of a pipeline become jobs of their own; what names one is looked at once."""

    def job(target: Any, options: Options) -> ProgramJob:
        return one_program(resolve_job(source.of_program(target, job_source), options, cluster=cluster))

    return job
