"""The whole way of the data in one call: `predict(target, on=...)`; each stage can be called alone."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Unpack

from meshcast.base import collected_later, names_taken, piece, room_for_nesting
from meshcast.jobs.described import inputs_of, throughput_of, unsaid_recipes
from meshcast.jobs.levers import Question, how_many, with_levers
from meshcast.jobs.pipeline import Pipeline
from meshcast.jobs.pipeline.job import PipelineJob
from meshcast.jobs.planned.stacked import chosen_options
from meshcast.jobs.program.job import ProgramJob
from meshcast.jobs.program.run import Run
from meshcast.jobs.resolve import Job, as_asked, job_source, one_program, resolve_job
from meshcast.jobs.serving import with_noticed
from meshcast.jobs.stated.source import StatedSource
from meshcast.jobs.stated.unsaid import with_unsaid
from meshcast.jobs.traced.job import TraceJob
from meshcast.jobs.what_ifs import with_what_ifs
from meshcast.options import OptionKeywords, Options
from meshcast.programs import Target
from meshcast.results import Prediction, Throughput


def predict(
    target: Target | Pipeline, options: Options | None = None, **overrides: Unpack[OptionKeywords]
) -> Prediction:
    """How a target will run: `predict("step.mlir", on="h200")`.

    Args:
        target: A file (StableHLO, HLO, a Hugging Face configuration), `module:function`, a model's name, a captured
            `Program` or what `load` makes one of, a `Pipeline` (or its .toml file), the .toml file of a job, or Chakra
            traces (a file, prefix, folder or manifest).
        options: All settings at once.
        **overrides: Single settings, by the field names of `Options`; `stack`, a software stack or its name, gives those
            that are left at their defaults.
    """
    return predict_with_job(target, chosen_options(options, overrides, where="predict"))[0]


def predict_with_job(target: Target | Pipeline, chosen: Options) -> tuple[Prediction, Job]:
    """How a target will run, as `predict` tells it, and the job behind it, which holds all that was worked out for that."""
    started = time.perf_counter()
    with collected_later(), names_taken(), room_for_nesting(), ExitStack() as around:
        told = job_source(target)
        if isinstance(told, StatedSource):
            around.enter_context(told.blamed(chosen))
        given = chosen
        source, chosen = as_asked(told, chosen)
        job = resolve_job(source, chosen)
        # A trace has decided what could be changed.
        helped = 0 if isinstance(job, TraceJob) else how_many(chosen.levers)
        with piece("predicting", done=0, total=1 + helped):
            question = answered(job)

        def again(other: Options) -> Question:
            same = other.on == chosen.on
            changed = resolve_job(source, other, cluster=question.cluster if same else None)
            # Of a change its step is told, and not how far that is to be trusted: two simulations in three.
            return answered(replace(changed, interval=False) if isinstance(changed, ProgramJob) else changed)

        prediction = with_levers(question, again) if helped else question.prediction
        if chosen.what_if:
            prediction = with_what_ifs(replace(question, prediction=prediction), again)
    if isinstance(told, StatedSource):
        prediction = replace(prediction, warnings=(*prediction.warnings, *told.assumptions))
        remat = told.unsaid_remat(given, chosen)
        prediction = prediction if remat is None else with_unsaid(prediction, remat)
    return replace(prediction, seconds=time.perf_counter() - started), job


def predict_job(job: Job) -> Prediction:
    """How a job will run, as `predict` tells it, without what would help."""
    started = time.perf_counter()
    with collected_later(), names_taken(), room_for_nesting():
        prediction = answered(job).prediction
    return replace(prediction, seconds=time.perf_counter() - started)


def answered(job: Job) -> Question:
    """A job's prediction with what shaped it, and of models with what it gets done, beside everything it was asked with."""
    prediction, options = job.predict(), job.given
    asked = None if isinstance(job, TraceJob) else job.asked
    if isinstance(job, (ProgramJob, PipelineJob)) and job.brief:
        done = throughput_of(asked, prediction) if asked is not None else None
        return Question(
            options=options, asked=asked, prediction=replace(prediction, throughput=done), cluster=job.cluster
        )
    throughput: Throughput | None = None
    recipes: tuple[str, ...] = ()
    if asked is not None:
        prediction = with_noticed(prediction, asked.builder, asked.mode, options.program.settings)
        throughput, recipes = throughput_of(asked, prediction), unsaid_recipes(asked, options.brought)
    described = inputs_of(options, asked, prediction, job.cluster.device)
    prediction = replace(prediction, inputs=described, throughput=throughput, warnings=(*prediction.warnings, *recipes))
    return Question(options=options, asked=asked, prediction=prediction, cluster=job.cluster)


def prepare(target: Target, options: Options) -> Run:
    """Everything up to the kernels: captured, partitioned, read and lowered for the chosen hardware."""
    return one_program(resolve_job(target, options)).run
