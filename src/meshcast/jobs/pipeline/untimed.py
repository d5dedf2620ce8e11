"""What is known of a pipeline before anything is timed: its memory, whether that fits, and what it counts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from meshcast.base import VERSION, format_bytes, format_time
from meshcast.hardware import Cluster
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.step import StepParts, message_counts, program_counts
from meshcast.results import Infeasible, PipelineShare, Prediction, Provenance, StageShare
from meshcast.simulate import MemoryUse


def worst_stage(share: PipelineShare) -> StageShare:
    """The stage that needs most memory."""
    return max(share.stages, key=lambda stage: stage.memory_bytes["peak"])


def pipeline_verdict(pipeline: Pipeline, step: StepParts, share: PipelineShare, capacity: int) -> Infeasible | None:
    """Why a step does not fit: its worst stage, or a program on its own; None where it fits. Nothing is timed for it.

    Args:
        pipeline: What runs.
        step: Its parts, put together.
        share: Its stages.
        capacity: Bytes that a device can hold.
    """
    worst = worst_stage(share)
    alone = [run.memory.peak for estimate in step.estimates for run in estimate.too_large]
    if worst.memory_bytes["peak"] <= capacity and not alone:
        return None
    parts = worst.memory_bytes
    demand = max([parts["peak"], *alone])
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


def untimed_prediction(
    pipeline: Pipeline, cluster: Cluster, step: StepParts, share: PipelineShare, *, network: str
) -> Prediction:
    """Everything that does not need a time.

    Args:
        pipeline: What runs.
        cluster: The hardware, for all devices of the pipeline.
        step: Its parts, put together, with predictions of their programs.
        share: Its stages.
        network: Name of the model that its messages are timed by.
    """
    stages = step.schedule.stages
    counted = [(estimate.predictions[name], count) for estimate, name, count in program_counts(step)]
    first = step.estimates[0].predictions["forward"]
    digest = hashlib.sha256()
    for estimate in step.estimates:
        digest.update("".join(p.sha256 for p in estimate.predictions.values()).encode())
    digest.update(repr((pipeline.schedule, pipeline.microbatches, pipeline.virtual_stages, pipeline.mesh)).encode())
    sent = sum(message.collective.sent_bytes * count for message, count in message_counts(step))
    sent += sum(late.share.bytes_sent for estimate in step.estimates for late in estimate.deferred)
    return replace(
        first,
        name=pipeline.name,
        sha256=digest.hexdigest(),
        devices=pipeline.devices,
        mesh={"pipeline": stages, **pipeline.mesh.sizes},
        cluster=cluster.name if pipeline.devices > 1 else None,
        network=network,
        infeasible=None,
        timed=None,
        flops=sum(count * p.flops for p, count in counted) / stages,
        hbm_bytes=sum(count * p.hbm_bytes for p, count in counted) / stages,
        communication_bytes=round((sum(count * p.communication_bytes for p, count in counted) + sent) / stages),
        kernels=round(sum(count * p.kernels for p, count in counted) / stages),
        memory=_memory(worst_stage(share)),
        pipeline=share,
        provenance=Provenance(analytical=1.0),
        warnings=_warnings(step.parts, cluster),
        version=VERSION,
    )


def _warnings(estimates: Sequence[PartEstimate], cluster: Cluster) -> tuple[str, ...]:
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
            if estimate.streaming_s:
                text += f"; moving them adds {format_time(estimate.streaming_s)} to a step"
            found[f"{estimate.part.name}: {text}"] = None
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
