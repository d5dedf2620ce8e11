"""What the ranks of a stage do in a step, and in which order: all that draws or writes a pipeline's step walks it by these.

A task runs its programs one after the other, and the last of them that makes gradients adds them up. Behind its last passes a
stage makes the sums of its gradients, in buckets; then the first and the last stage sum what they share; then every part is
updated: its program, what streaming its state from the host takes longer, the gathering of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshcast.base import Group
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import TASKS
from meshcast.jobs.pipeline.step import Message, StepParts
from meshcast.network import CollectivePlan
from meshcast.simulate import PassWork, Task
from meshcast.workload import Collective

PROGRAM_OF = {work: name for name, work in TASKS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCollective:
    """A collective behind the passes of a step, once a step.

    Attributes:
        label: What to call it.
        collective: All of it, over groups of `devices` devices.
        devices: How many consecutive ranks have such groups among them: rank r is device `r % devices`.
        plan: How it goes over the network.
        sent: Bytes that a rank sends by level of the network.
        seconds: How long it takes.
    """

    label: str
    collective: Collective
    devices: int
    plan: CollectivePlan
    sent: Mapping[str, float]
    seconds: float

    def share(self, pieces: int) -> EndCollective:
        """One of so many equal pieces."""
        if pieces == 1:
            return self
        smaller = replace(
            self.collective,
            input_bytes=self.collective.input_bytes // pieces,
            output_bytes=self.collective.output_bytes // pieces,
        )
        sent = {level: size / pieces for level, size in self.sent.items()}
        return replace(self, collective=smaller, sent=sent, seconds=self.seconds / pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePiece:
    """A piece of a part's update: its program, a collective, or else what streaming its state takes longer."""

    seconds: float
    program: str | None = None
    collective: EndCollective | None = None


def task_programs(step: StepParts, task: Task, position: int) -> tuple[str, ...]:
    """The programs of a task, in order."""
    whole = task.work is PassWork.BACKWARD and not step.schedule.split
    also = ("weight",) if whole and "weight" in step.estimates[position].programs else ()
    return (PROGRAM_OF[task.work], *also)


def adds_gradients(step: StepParts, task: Task, position: int) -> bool:
    """Whether a task ends with adding its gradients to those of the microbatches before, in a kernel of its own."""
    estimate = step.estimates[position]
    adds = PassWork.WEIGHT if step.schedule.split and "weight" in estimate.programs else PassWork.BACKWARD
    return bool(estimate.accumulation_s) and task.work is adds


def message_number(step: StepParts, task: Task, origin: int) -> int:
    """The number of the message that a task sends from a position, one for each message of a step."""
    return (task.microbatch * step.schedule.positions + origin) * 2 + (task.work is PassWork.BACKWARD)


def last_passes(step: StepParts, stage: int) -> dict[int, int]:
    """By chunk, the place in a stage's order of the last task that makes gradients; in order of these places."""
    gradient = PassWork.WEIGHT if step.schedule.split else PassWork.BACKWARD
    found = {task.chunk: at for at, task in enumerate(step.schedule.orders[stage]) if task.work is gradient}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def stage_positions(step: StepParts, stage: int) -> tuple[int, ...]:
    """The positions of a stage, by chunk."""
    return tuple(step.schedule.position(stage, chunk) for chunk in range(step.schedule.chunks))


def gradient_sums(pipeline: Pipeline, step: StepParts, position: int) -> tuple[EndCollective, ...]:
    """The sums of a part's gradients, one after the other: over devices of its stage, and over replicas."""
    found = [
        EndCollective(
            label="gradients summed",
            collective=late.collective,
            devices=late.devices,
            plan=late.plan,
            sent=late.plan.level_bytes,
            seconds=late.share.seconds / late.share.count,
        )
        for late in step.estimates[position].deferred
        for _ in range(late.share.count)
    ]
    message = step.reductions[position]
    if message is not None:
        found.append(_over_replicas("gradients reduced", pipeline, message))
    return tuple(each for each in found if each.seconds)


def gradient_seconds(step: StepParts, position: int) -> float:
    """Seconds of all of `gradient_sums`."""
    message = step.reductions[position]
    shares = [late.share for late in step.estimates[position].deferred]
    # Added one by one, in the order of the sums: what a report adds up is this number to the last bit.
    each = (share.seconds / share.count for share in shares for _ in range(share.count))
    return sum(each, 0.0) + (message.seconds if message is not None else 0.0)


def tied_sum(pipeline: Pipeline, step: StepParts, stage: int) -> EndCollective | None:
    """The sum of what the first and the last position share, each device with its counterpart; None of other stages."""
    message, last = step.ties[0], step.schedule.place(step.schedule.positions - 1)[0]
    if message is None or stage not in (0, last):
        return None
    size = pipeline.mesh.size
    pairs = tuple((device, device + last * size) for device in range(size))
    group = Group(dims=((2, last * size),), axes=("pipeline",), table=pairs)
    return EndCollective(
        label="tied gradients summed", collective=replace(message.collective, group=group), devices=pipeline.devices,
        plan=message.plan, sent=message.plan.level_bytes, seconds=message.seconds,
    )  # fmt: skip


def update_pieces(pipeline: Pipeline, step: StepParts, position: int) -> tuple[UpdatePiece, ...]:
    """What a part's update is made of, in order."""
    estimate, gather = step.estimates[position], step.gathers[position]
    found = []
    if "update" in estimate.programs:
        found.append(UpdatePiece(seconds=estimate.predictions["update"].step_time_s or 0.0, program="update"))
    if estimate.streaming_s:
        found.append(UpdatePiece(seconds=estimate.streaming_s))
    if gather is not None:
        gathering = _over_replicas("parameters gathered", pipeline, gather)
        found.append(UpdatePiece(seconds=gather.seconds, collective=gathering))
    return tuple(found)


def _over_replicas(label: str, pipeline: Pipeline, message: Message) -> EndCollective:
    over = pipeline.reduction.over if pipeline.reduction else ()
    # As every stage has it: the message's own group lies where that stage is timed.
    collective = replace(message.collective, group=pipeline.mesh.group(over))
    return EndCollective(
        label=label, collective=collective, devices=pipeline.mesh.size, plan=message.plan,
        sent=message.plan.level_bytes, seconds=message.seconds,
    )  # fmt: skip
