"""Tables of a pipeline: a row for each stage, and what the busiest of them runs and sends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.step import Message, StepParts
from meshcast.jobs.pipeline.walk import stage_positions
from meshcast.results import CollectiveShare, KernelShare, PipelineShare, StageShare
from meshcast.simulate import PipelineRun, stage_memory

TOP_KERNELS = 10


def pipeline_share(pipeline: Pipeline, step: StepParts, run: PipelineRun | None) -> PipelineShare:
    """The pipeline's step, a row for each stage; without times where there is no run."""
    sent = [message for message in (*step.forward, *step.backward) if message is not None]
    largest = max(sent, key=lambda message: message.seconds, default=None)
    send_s = largest.seconds if largest else 0.0
    return PipelineShare(
        schedule=step.schedule.name,
        stages=_stage_shares(pipeline, step, run),
        microbatches=step.schedule.microbatches,
        virtual_stages=step.schedule.chunks,
        barrier=step.schedule.barrier,
        bubble=run.bubble if run else None,
        send_bytes=largest.collective.payload_bytes if largest else 0,
        send_s=send_s if run else None,
        critical_path=run.critical_path if run else (),
    )


def _stage_shares(pipeline: Pipeline, step: StepParts, run: PipelineRun | None) -> tuple[StageShare, ...]:
    """A row for each stage."""
    schedule, devices = step.schedule, pipeline.mesh.size
    parts = tuple(estimate.held for estimate in step.estimates)
    duration = run.duration if run and run.duration else 1.0
    rows = []
    for stage in range(schedule.stages):
        timed = run.stages[stage] if run else None
        mine = stage_positions(step, stage)
        estimates = [step.estimates[position] for position in mine]
        memory = stage_memory(schedule, stage, parts)
        updating = max((e.working_bytes.get("update", 0) for e in estimates), default=0)
        rows.append(
            StageShare(
                stage=stage,
                parts=" + ".join(_numbered(step, position) for position in mine),
                first_device=stage * devices,
                devices=devices,
                busy_s=timed.busy if timed else None,
                exposed_communication_s=timed.sending + timed.reducing if timed else None,
                idle_s=timed.idle if timed else None,
                idle_share=timed.idle / duration if timed else None,
                in_flight=memory.in_flight,
                memory_bytes={
                    "peak": max(memory.peak, memory.fixed + updating),
                    "parameters": sum(e.parameter_bytes for e in estimates),
                    "gradients": sum(e.gradient_bytes for e in estimates),
                    "optimizer_state": sum(e.optimizer_bytes for e in estimates),
                    "activations": memory.activations,
                    "working": max(memory.working, updating - memory.activations),
                },
            )
        )
    return tuple(rows)


def _numbered(step: StepParts, position: int) -> str:
    """A part's name, with its number among equal ones."""
    estimate = step.estimates[position]
    if estimate.part.count == 1:
        return estimate.part.name
    first = next(index for index, other in enumerate(step.estimates) if other.part is estimate.part)
    return f"{estimate.part.name} {position - first + 1}"


def kernel_shares(step: StepParts, stage: int) -> tuple[KernelShare, ...]:
    """The kernels that take most of a stage's step."""
    found: dict[tuple[str, str, str], KernelShare] = {}
    for estimate, name, times in _runs(step, stage):
        for share in estimate.predictions[name].top_kernels:
            key = (share.name, share.limited_by, share.location)
            before = found.get(key)
            found[key] = replace(
                share,
                count=times * share.count + (before.count if before else 0),
                seconds=times * share.seconds + (before.seconds if before else 0.0),
            )
    return tuple(sorted(found.values(), key=lambda share: -share.seconds)[:TOP_KERNELS])


def collective_shares(step: StepParts, stage: int) -> tuple[CollectiveShare, ...]:
    """What a stage communicates in a step: inside its programs, to its neighbours, and over its replicas."""
    found: defaultdict[tuple[str, str, int, str, str], list[CollectiveShare]] = defaultdict(list)
    for estimate, name, times in _runs(step, stage):
        for share in estimate.predictions[name].collectives:
            many = replace(
                share,
                count=times * share.count,
                bytes_sent=times * share.bytes_sent,
                seconds=times * share.seconds,
            )
            found[share.kind, share.group, share.group_size, share.algorithm, share.level].append(many)
    for position in stage_positions(step, stage):
        often = step.schedule.microbatches
        for late in step.estimates[position].deferred:
            share = late.share
            found[share.kind, share.group, share.group_size, share.algorithm, share.level].append(share)
        for message, times in (
            (step.forward[position], often),
            (step.backward[position], often),
            (step.reductions[position], 1),
            (step.gathers[position], 1),
            (step.ties[position], 1),
        ):
            if message is not None:
                share = _share(message, times)
                found[share.kind, share.group, share.group_size, share.algorithm, share.level].append(share)
    merged = [
        replace(
            shares[0],
            count=sum(share.count for share in shares),
            bytes_sent=sum(share.bytes_sent for share in shares),
            seconds=sum(share.seconds for share in shares),
        )
        for shares in found.values()
    ]
    return tuple(sorted(merged, key=lambda share: -share.seconds))


def _runs(step: StepParts, stage: int) -> list[tuple[PartEstimate, str, int]]:
    return [
        (step.estimates[position], name, 1 if name == "update" else step.schedule.microbatches)
        for position in stage_positions(step, stage)
        for name in step.estimates[position].programs
    ]


def _share(message: Message, times: int) -> CollectiveShare:
    collective = message.collective
    return CollectiveShare(
        kind=collective.kind,
        group=str(collective.group),
        group_size=collective.group.size,
        count=times,
        bytes_sent=times * collective.sent_bytes,
        seconds=times * message.seconds,
        algorithm=message.plan.algorithm,
        level=message.plan.level,
    )
