"""A pipeline's step in time: its programs' own predictions and what passes between them, as a mean over the stages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from meshcast.base import larger
from meshcast.estimate import idle_watts
from meshcast.hardware import Cluster
from meshcast.jobs.pipeline.communication import pipeline_communication
from meshcast.jobs.pipeline.costs import End, step_costs
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.replicas import ReplicaRun, replica_shares
from meshcast.jobs.pipeline.stage_tables import collective_shares, kernel_shares, pipeline_share
from meshcast.jobs.pipeline.step import StepParts, message_counts, program_counts
from meshcast.results import Prediction, Provenance, Timed
from meshcast.simulate import Breakdown, simulate_pipeline


def timed_prediction(
    prediction: Prediction,
    pipeline: Pipeline,
    cluster: Cluster,
    replicas: tuple[ReplicaRun, ...],
    *,
    interval: bool = True,
    brief: bool = False,
) -> Prediction:
    """A pipeline's prediction with the step of its slowest replica.

    Args:
        prediction: All of it that needs no time.
        pipeline: What runs.
        cluster: The hardware, for all devices of the pipeline.
        replicas: The step of every kind of replica, the slowest first.
        interval: Whether the ends of the step's interval are asked for.
        brief: Whether no table is asked for.
    """
    step, run = replicas[0].step, replicas[0].run
    duration, count = run.duration, step.schedule.stages
    energy = idle_watts(cluster.device) * duration
    busy: defaultdict[str, float] = defaultdict(float)
    by_fidelity: defaultdict[str, float] = defaultdict(float)
    by_types: defaultdict[tuple[str, ...], float] = defaultdict(float)
    breakdown = Breakdown()
    communicating = model = hardware = model_flops = 0.0
    for estimate, name, times in program_counts(step):
        program = estimate.predictions[name]
        alone = program.timed
        assert alone is not None
        seconds, share = times * alone.step_time_s, times / count
        breakdown += alone.breakdown * share
        energy += share * ((alone.energy_j or 0.0) - idle_watts(cluster.device) * alone.step_time_s)
        communicating += share * alone.communication_s
        model_flops += share * (alone.model_flops or 0.0)
        model += share * (alone.mfu or 0.0) * alone.step_time_s
        hardware += share * (alone.hfu or 0.0) * alone.step_time_s
        by_fidelity[program.fidelity] += seconds
        by_types[alone.matrix_types] += share * (alone.model_flops or 0.0)
        for origin in () if brief else Provenance.__dataclass_fields__:
            busy[origin] += seconds * getattr(program.provenance, origin)
    added = sum(step.schedule.microbatches * e.accumulation_s for e in step.estimates) / count
    gathered = sum(message.seconds for message in (*step.gathers, *step.ties) if message is not None) / count
    waiting = sum(stage.sending + stage.reducing for stage in run.stages) / count
    streamed = sum(e.streaming_s for e in step.estimates) / count
    breakdown += Breakdown(memory=added + streamed, exposed_communication=gathered + waiting)
    # Bubbles.
    breakdown += Breakdown(idle=larger(0.0, duration - breakdown.total))
    busy["analytical"] += sum(message.seconds * times for message, times in message_counts(step)) + added * count
    total = sum(busy.values()) or 1.0
    bottleneck = 0 if brief else max(range(count), key=lambda stage: run.stages[stage].busy)
    timed = Timed(
        step_time_s=duration,
        interval_s=_interval(pipeline, step, duration) if interval else (duration, duration),
        breakdown=breakdown,
        communication_s=communicating + sum(m.seconds * times for m, times in message_counts(step)) / count,
        energy_j=energy,
        mfu=model / duration,
        hfu=hardware / duration,
        model_flops=model_flops,
        matrix_types=max(by_types, key=lambda types: by_types[types]),
        top_kernels=() if brief else kernel_shares(step, bottleneck),
        collectives=() if brief else collective_shares(step, bottleneck),
        communication=None if brief else pipeline_communication(program_counts(step), step, run, cluster),
        ranks=replica_shares(pipeline, replicas),
    )
    return replace(
        prediction,
        fidelity=max(by_fidelity, key=lambda name: by_fidelity[name]),
        timed=timed,
        provenance=Provenance(**{origin: seconds / total for origin, seconds in busy.items()}),
        pipeline=prediction.pipeline if brief else pipeline_share(pipeline, step, run),
    )


def _interval(pipeline: Pipeline, step: StepParts, middle: float) -> tuple[float, float]:
    """The step simulated with everything at its lower, and at its upper end.

    A step that was put in time otherwise (`Simulate`) has them in proportion to its own middle.
    """
    ends: tuple[End, End, End] = ("low", "middle", "high")
    low, own, high = (simulate_pipeline(step.schedule, step_costs(pipeline, step, end)).duration for end in ends)
    share = middle / own if own else 1.0
    return min(low * share, middle), max(high * share, middle)
