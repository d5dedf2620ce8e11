"""The prediction of a pipeline: its parts wired and judged by their memory, then each timed once, and the step simulated.

FLOPs, bytes and energy are those of a device on average over the stages, and so is the breakdown: every stage's parts add
up to the step, hence their mean does. Memory is that of the worst stage, which is the one that must fit.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.base import InfeasibleError, UnsupportedError, format_bytes, whole_part
from meshcast.hardware import Cluster
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.effects import without_effect
from meshcast.jobs.pipeline.paired import with_paired_passes
from meshcast.jobs.pipeline.parts import PartEstimate, Prepare, predicted_part, wired_part
from meshcast.jobs.pipeline.replicas import Simulate, own_channels, run_replicas
from meshcast.jobs.pipeline.stage_tables import pipeline_share
from meshcast.jobs.pipeline.state import HardwareState
from meshcast.jobs.pipeline.step import StepParts, assemble
from meshcast.jobs.pipeline.timed import timed_prediction
from meshcast.jobs.pipeline.untimed import pipeline_verdict, untimed_prediction, worst_stage
from meshcast.lower import NOTHING_PAIRED
from meshcast.network import Setting, arranged
from meshcast.options import Options
from meshcast.results import Prediction
from meshcast.simulate import PipelineRun


def predict_pipeline(
    pipeline: Pipeline,
    options: Options,
    cluster: Cluster,
    prepare: Prepare,
    simulate: Simulate = own_channels,
    *,
    interval: bool = True,
    brief: bool = False,
) -> Prediction:
    """How a step of a pipeline will run; one that does not fit is not timed.

    Args:
        pipeline: What runs.
        options: Everything else it depends on.
        cluster: The hardware, for all devices of the pipeline.
        prepare: A program on the hardware of one stage.
        simulate: How its step is put in time.
        interval: Whether the ends of the step's interval are asked for.
        brief: Whether the step is all that is asked for: nothing is said of it, and no table is made.
    """
    state = HardwareState.of(options.network.conditions)
    wired, setting, said = _wired(pipeline, cluster, prepare, options, state)
    share = pipeline_share(pipeline, wired, None)
    capacity = wired.estimates[0].programs["forward"].run.capacity
    infeasible = pipeline_verdict(pipeline, wired, share, capacity)
    if infeasible is not None:
        step = wired.with_parts(lambda part: predicted_part(part, timed=False))
        untimed = untimed_prediction(pipeline, cluster, step, share, network=options.network.model)
        return replace(untimed, infeasible=infeasible)
    step = _timed_parts(wired, pipeline, cluster, paired=options.lowering.rewrites.paired_passes)
    replicas = run_replicas(pipeline, step, state, simulate)
    if brief:
        untimed = untimed_prediction(pipeline, cluster, step, share, network=options.network.model)
        return timed_prediction(untimed, pipeline, cluster, replicas, interval=interval, brief=True)
    # What a stack brings is for all programs, whether they have a use for it or not.
    idle = _idle(step.parts, paired=options.lowering.rewrites.paired_passes) if "overlap" in options.asked else ()
    # The catalogue's clusters may have more than a pipeline needs; what a user has written should do something.
    vain = without_effect(pipeline, step.parts, setting, options.network.model, levels=options.own_hardware)
    untimed = untimed_prediction(pipeline, cluster, step, share, network=options.network.model)
    answer = timed_prediction(untimed, pipeline, cluster, replicas, interval=interval)
    return replace(answer, warnings=(*answer.warnings, *said, *idle, *vain))


def timed_parts(pipeline: Pipeline, cluster: Cluster, prepare: Prepare, options: Options) -> tuple[PartEstimate, ...]:
    """A pipeline's parts with predictions of their programs, equal parts once; whether they fit is not asked."""
    everyone = HardwareState.of(options.network.conditions).everyone
    wired = (wired_part(part, pipeline, prepare, everyone) for part in pipeline.parts)
    return tuple(predicted_part(part, timed=True) for part in wired)


def run_pipeline(
    pipeline: Pipeline, cluster: Cluster, prepare: Prepare, options: Options, simulate: Simulate = own_channels
) -> PipelineRun:
    """A pipeline's step in time, that of its slowest replica."""
    state = HardwareState.of(options.network.conditions)
    wired, _, _ = _wired(pipeline, cluster, prepare, options, state)
    step = _timed_parts(wired, pipeline, cluster, paired=options.lowering.rewrites.paired_passes)
    return run_replicas(pipeline, step, state, simulate)[0].run


def pipeline_step(
    pipeline: Pipeline, cluster: Cluster, prepare: Prepare, options: Options, simulate: Simulate = own_channels
) -> tuple[StepParts, PipelineRun]:
    """A pipeline's parts on their hardware, put together, and the step in time; all devices are alike.

    Raises:
        InfeasibleError: A stage does not fit into its devices' memory.
        UnsupportedError: Some devices are in a state of their own.
    """
    state = HardwareState.of(options.network.conditions)
    if state.single:
        raise UnsupportedError(
            "devices that are not alike have no trace yet", where="--slow, --link", fix="leave it out"
        )
    wired, _, _ = _wired(pipeline, cluster, prepare, options, state)
    share = pipeline_share(pipeline, wired, None)
    found = pipeline_verdict(pipeline, wired, share, whole_part(cluster.device.memory_bytes))
    if found is not None:
        needed = f"{format_bytes(found.demand)} of {format_bytes(found.bound)}"
        raise InfeasibleError(
            f"stage {worst_stage(share).stage} needs {needed}: there is no step",
            where="memory", fix="; ".join(found.levers),
        )  # fmt: skip
    step = _timed_parts(wired, pipeline, cluster, paired=options.lowering.rewrites.paired_passes)
    return step, run_replicas(pipeline, step, state, simulate)[0].run


def _wired(
    pipeline: Pipeline, cluster: Cluster, prepare: Prepare, options: Options, state: HardwareState
) -> tuple[StepParts, Setting, tuple[str, ...]]:
    """A pipeline's parts on healthy devices put together, their network, and what should be said about that.

    Of all this the network alone is timed: which message is the largest depends on the links that it takes.
    """
    setting, said = arranged(options.network.arrangement, cluster, pipeline.devices, {})
    parts = [wired_part(part, pipeline, prepare, state.everyone) for part in pipeline.parts]
    return assemble(pipeline, parts, setting, options.network.model), setting, said


def _timed_parts(step: StepParts, pipeline: Pipeline, cluster: Cluster, *, paired: bool) -> StepParts:
    """The step with every part's programs timed, and paired where that is asked for."""
    step = step.with_parts(lambda part: predicted_part(part, timed=True))
    if not paired:
        return step
    return step.with_parts(lambda part: with_paired_passes(part, pipeline, cluster.device))


def _idle(estimates: list[PartEstimate], *, paired: bool) -> tuple[str, ...]:
    """What to say of rewrites that no program of the step has a use for.

    Args:
        estimates: The parts.
        paired: Whether passes are to run in pairs.
    """
    runs = [program.run.lowered for estimate in estimates for program in estimate.programs.values()]
    found = tuple(text for text in runs[0].idle if all(text in run.idle for run in runs))
    hidden = any(estimate.paired_s for estimate in estimates)
    return (*found, NOTHING_PAIRED) if paired and not hidden else found
