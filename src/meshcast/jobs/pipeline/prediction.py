"""The prediction of a pipeline: parts estimated once each, the step simulated over stages, a `Prediction` of it all.

FLOPs, bytes and energy are those of a device on average over the stages, and so is the breakdown: every stage's parts add
up to the step, hence their mean does. Memory is that of the worst stage, which is the one that must fit.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from meshcast.base import VERSION, InfeasibleError, UnsupportedError, format_bytes, format_time
from meshcast.estimate import idle_watts
from meshcast.hardware import Cluster
from meshcast.jobs.pipeline.communication import pipeline_communication
from meshcast.jobs.pipeline.costs import End, step_costs
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.effects import without_effect
from meshcast.jobs.pipeline.paired import with_paired_passes
from meshcast.jobs.pipeline.parts import PartEstimate, Prepare, estimate_part
from meshcast.jobs.pipeline.replicas import Simulate, own_channels, replica_shares, run_replicas
from meshcast.jobs.pipeline.stage_tables import collective_shares, kernel_shares, pipeline_share
from meshcast.jobs.pipeline.state import HardwareState
from meshcast.jobs.pipeline.step import Message, StepParts, assemble
from meshcast.lower import NOTHING_PAIRED
from meshcast.network import Setting, arranged
from meshcast.options import Options
from meshcast.results import Infeasible, Prediction, Provenance, StageShare
from meshcast.simulate import Breakdown, MemoryUse, PipelineRun, simulate_pipeline


def predict_pipeline(
    pipeline: Pipeline, options: Options, cluster: Cluster, prepare: Prepare, simulate: Simulate = own_channels
) -> Prediction:
    """How a step of a pipeline will run.

    Args:
        pipeline: What runs.
        options: Everything else it depends on.
        cluster: The hardware, for all devices of the pipeline.
        prepare: A program on the hardware of one stage.
        simulate: How its step is put in time.
    """
    state = HardwareState.of(options.network.conditions)
    estimates, setting, step, said = _assembled(pipeline, cluster, prepare, options, state)
    prediction = _untimed(pipeline, options, cluster, estimates, step)
    share = pipeline_share(pipeline, step, None)
    worst = max(share.stages, key=lambda stage: stage.memory_bytes["peak"])
    prediction = replace(prediction, memory=_memory(worst), pipeline=share)
    alone = [p for estimate in estimates for p in estimate.predictions.values() if not p.feasible]
    if worst.memory_bytes["peak"] > prediction.capacity_bytes or alone:
        return replace(prediction, infeasible=_does_not_fit(worst, prediction.capacity_bytes, pipeline, alone))
    replicas = run_replicas(pipeline, step, state, simulate)
    # The catalogue's clusters may have more than a pipeline needs; what a user has written should do something.
    own = options.own_hardware
    said = (*said, *without_effect(pipeline, estimates, setting, options.network.model, levels=own))
    answer = _timed(prediction, pipeline, cluster, replicas[0].step, replicas[0].run)
    return replace(answer, ranks=replica_shares(pipeline, replicas), warnings=(*answer.warnings, *said))


def run_pipeline(
    pipeline: Pipeline, cluster: Cluster, prepare: Prepare, options: Options, simulate: Simulate = own_channels
) -> PipelineRun:
    """A pipeline's step in time, that of its slowest replica."""
    state = HardwareState.of(options.network.conditions)
    _, _, step, _ = _assembled(pipeline, cluster, prepare, options, state)
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
    estimates, _, step, _ = _assembled(pipeline, cluster, prepare, options, state)
    worst = max(pipeline_share(pipeline, step, None).stages, key=lambda stage: stage.memory_bytes["peak"])
    capacity = int(cluster.device.memory_bytes)
    alone = [p for estimate in estimates for p in estimate.predictions.values() if not p.feasible]
    if worst.memory_bytes["peak"] > capacity or alone:
        found = _does_not_fit(worst, capacity, pipeline, alone)
        raise InfeasibleError(
            f"stage {worst.stage} needs {format_bytes(found.demand)} of {format_bytes(found.bound)}: there is no step",
            where="memory", fix="; ".join(found.levers),
        )  # fmt: skip
    return step, run_replicas(pipeline, step, state, simulate)[0].run


def _assembled(
    pipeline: Pipeline, cluster: Cluster, prepare: Prepare, options: Options, state: HardwareState
) -> tuple[list[PartEstimate], Setting, StepParts, tuple[str, ...]]:
    """A pipeline's parts on healthy devices, their network, both put together, and what should be said about it."""
    setting, said = arranged(options.network.arrangement, cluster, pipeline.devices, {})
    estimates = [estimate_part(part, pipeline, prepare, state.everyone) for part in pipeline.parts]
    if options.lowering.rewrites.paired_passes:
        estimates = [with_paired_passes(estimate, pipeline, cluster.device) for estimate in estimates]
    if "overlap" in options.asked:  # what a stack brings is for all programs, whether they have a use for it or not
        said = (*said, *_idle(estimates, paired=options.lowering.rewrites.paired_passes))
    return estimates, setting, assemble(pipeline, estimates, setting, options.network.model), said


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


def _counts(step: StepParts) -> Iterator[tuple[PartEstimate, str, int]]:
    """(estimate, program, how often a step runs it), of every position."""
    for estimate in step.estimates:
        for name in estimate.programs:
            yield estimate, name, 1 if name == "update" else step.schedule.microbatches


def _messages(step: StepParts) -> Iterator[tuple[Message, int]]:
    """Every message and reduction with how often it is sent in a step."""
    for messages, count in (
        (step.forward, step.schedule.microbatches),
        (step.backward, step.schedule.microbatches),
        (step.reductions, 1),
        (step.gathers, 1),
        (step.ties, 1),
    ):
        yield from ((message, count) for message in messages if message is not None)


def _untimed(
    pipeline: Pipeline, options: Options, cluster: Cluster, estimates: list[PartEstimate], step: StepParts
) -> Prediction:
    """Everything that does not need a time."""
    stages = step.schedule.stages
    counted = [(estimate.predictions[name], count) for estimate, name, count in _counts(step)]
    first = estimates[0].predictions["forward"]
    digest = hashlib.sha256()
    for estimate in step.estimates:
        digest.update("".join(p.sha256 for p in estimate.predictions.values()).encode())
    digest.update(repr((pipeline.schedule, pipeline.microbatches, pipeline.virtual_stages, pipeline.mesh)).encode())
    sent = sum(message.collective.sent_bytes * count for message, count in _messages(step))
    sent += sum(late.share.bytes_sent for estimate in step.estimates for late in estimate.deferred)
    return replace(
        first,
        name=pipeline.name,
        sha256=digest.hexdigest(),
        devices=pipeline.devices,
        mesh={"pipeline": stages, **pipeline.mesh.sizes},
        cluster=cluster.name if pipeline.devices > 1 else None,
        network=options.network.model,
        infeasible=None,
        step_time_s=None,
        interval_s=None,
        breakdown=None,
        flops=sum(count * p.flops for p, count in counted) / stages,
        hbm_bytes=sum(count * p.hbm_bytes for p, count in counted) / stages,
        communication_bytes=round((sum(count * p.communication_bytes for p, count in counted) + sent) / stages),
        energy_j=None,
        mfu=None,
        hfu=None,
        model_flops=None,
        kernels=round(sum(count * p.kernels for p, count in counted) / stages),
        communication_s=None,
        provenance=Provenance(analytical=1.0),
        levers=(),
        top_kernels=(),
        collectives=(),
        communication=None,
        timeline=None,
        ranks=(),
        warnings=_warnings(estimates, cluster),
        version=VERSION,
    )


def _warnings(estimates: list[PartEstimate], cluster: Cluster) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for estimate in estimates:
        for program in estimate.programs.values():
            size = program.run.devices
            if crossed := next((lv for lv in cluster.levels[:-1] if size % lv.size and lv.size % size), None):
                text = f"{size} devices, which do not fill domains of {crossed.size} ({crossed.name}) evenly"
                found[f"{program.label} runs on {text}: all are timed like the first ones"] = None
        for name, prediction in estimate.predictions.items():
            found.update((f"{estimate.part.name}, {name}: {warning}", None) for warning in prediction.warnings)
        if "update" not in estimate.programs:
            found[f"{estimate.part.name} has no update program: its optimizer is not counted"] = None
        if estimate.host_bytes:
            text = f"{format_bytes(estimate.host_bytes)} of optimizer state for each device are in the host's memory"
            found[f"{estimate.part.name}: {text}; moving them adds {format_time(estimate.streaming_s)} to a step"] = (
                None
            )
        if estimate.accumulation_s:
            text = "takes no gradients to add to: the sum over microbatches is counted as a pass over memory"
            found[f"{estimate.part.name} {text}"] = None
    return tuple(found)


def _memory(worst: StageShare) -> MemoryUse:
    """The worst stage's memory: what stays for the step are arguments, all else temporaries."""
    parts = worst.memory_bytes
    held = {name: parts[name] for name in ("parameters", "gradients", "optimizer_state")}
    roles = {
        "parameter": held["parameters"],
        "gradients": held["gradients"],
        "optimizer_state": held["optimizer_state"],
    }
    fixed = sum(held.values())
    return MemoryUse(
        peak=parts["peak"],
        arguments=fixed,
        outputs=0,
        temporaries=parts["peak"] - fixed,
        aliased=0,
        by_role={role: size for role, size in roles.items() if size},
    )


def _does_not_fit(worst: StageShare, capacity: int, pipeline: Pipeline, alone: list[Prediction]) -> Infeasible:
    parts = worst.memory_bytes
    demand = max([parts["peak"], *(p.memory.peak for p in alone)])
    said = ", ".join(
        f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in parts.items() if name != "peak" and size
    )
    levers = [f"stage {worst.stage} ({worst.parts}) is the one that does not fit: {said}"]
    if parts["activations"] > parts["peak"] // 4:
        more = "save less for the backward pass (recompute more), use smaller microbatches"
        schedule = ", or 1f1b instead of gpipe" if pipeline.schedule == "gpipe" else ""
        levers.append(f"{more}{schedule}: {worst.in_flight} microbatches are in flight")
    if parts["parameters"] + parts["gradients"] + parts["optimizer_state"] > parts["peak"] // 4:
        levers.append("cut the model into more parts, widen tensor parallelism, or shard the optimizer over replicas")
    return Infeasible(resource="memory_bytes", demand=demand, bound=capacity, levers=tuple(levers))


def _timed(
    prediction: Prediction, pipeline: Pipeline, cluster: Cluster, step: StepParts, run: PipelineRun
) -> Prediction:
    duration, count = run.duration, step.schedule.stages
    energy = idle_watts(cluster.device) * duration
    busy: defaultdict[str, float] = defaultdict(float)
    by_fidelity: defaultdict[str, float] = defaultdict(float)
    by_types: defaultdict[tuple[str, ...], float] = defaultdict(float)
    breakdown = Breakdown()
    communicating = model = hardware = model_flops = 0.0
    for estimate, name, times in _counts(step):
        alone = estimate.predictions[name]
        assert alone.step_time_s is not None
        assert alone.breakdown is not None
        seconds, share = times * alone.step_time_s, times / count
        breakdown += alone.breakdown * share
        energy += share * ((alone.energy_j or 0.0) - idle_watts(cluster.device) * alone.step_time_s)
        communicating += share * (alone.communication_s or 0.0)
        model_flops += share * (alone.model_flops or 0.0)
        model += share * (alone.mfu or 0.0) * alone.step_time_s
        hardware += share * (alone.hfu or 0.0) * alone.step_time_s
        by_fidelity[alone.fidelity] += seconds
        by_types[alone.matrix_types] += share * (alone.model_flops or 0.0)
        for origin in Provenance.__dataclass_fields__:
            busy[origin] += seconds * getattr(alone.provenance, origin)
    added = sum(step.schedule.microbatches * e.accumulation_s for e in step.estimates) / count
    gathered = sum(message.seconds for message in (*step.gathers, *step.ties) if message is not None) / count
    waiting = sum(stage.sending + stage.reducing for stage in run.stages) / count
    streamed = sum(e.streaming_s for e in step.estimates) / count
    breakdown += Breakdown(memory=added + streamed, exposed_communication=gathered + waiting)
    # Bubbles.
    breakdown += Breakdown(idle=max(0.0, duration - breakdown.total))
    busy["analytical"] += sum(message.seconds * times for message, times in _messages(step)) + added * count
    total = sum(busy.values()) or 1.0
    bottleneck = max(range(count), key=lambda stage: run.stages[stage].busy)
    return replace(
        prediction,
        fidelity=max(by_fidelity, key=lambda name: by_fidelity[name]),
        step_time_s=duration,
        interval_s=_interval(pipeline, step, duration),
        breakdown=breakdown,
        energy_j=energy,
        mfu=model / duration,
        hfu=hardware / duration,
        model_flops=model_flops,
        matrix_types=max(by_types, key=lambda types: by_types[types]),
        communication_s=communicating + sum(m.seconds * times for m, times in _messages(step)) / count,
        provenance=Provenance(**{origin: seconds / total for origin, seconds in busy.items()}),
        top_kernels=kernel_shares(step, bottleneck),
        collectives=collective_shares(step, bottleneck),
        communication=pipeline_communication(_counts(step), step, run, cluster),
        pipeline=pipeline_share(pipeline, step, run),
    )


def _interval(pipeline: Pipeline, step: StepParts, middle: float) -> tuple[float, float]:
    """The step simulated with everything at its lower, and at its upper end.

    A step that was put in time otherwise (`Simulate`) has them in proportion to its own middle.
    """
    ends: tuple[End, End, End] = ("low", "middle", "high")
    low, own, high = (simulate_pipeline(step.schedule, step_costs(pipeline, step, end)).duration for end in ends)
    share = middle / own if own else 1.0
    return min(low * share, middle), max(high * share, middle)
