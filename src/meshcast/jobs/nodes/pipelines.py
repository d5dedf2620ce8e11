"""The trace of a pipeline: every stage's tasks in the schedule's order, with messages between stages, then the update.

Times are those of `simulate.pipelines`. A task is the body of its program; what it takes from another stage is a receive, what
it gives a send behind it. Gradients are reduced in buckets, of which the k-th can go when a k-th part of the last backward
pass is over. No node of that pass need end just then, so that a timer of the host's stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from meshcast.chakra import FIRST_JOB_STREAM, STEPS_OVERLAP, Attribute, NodeType
from meshcast.hardware import host_rate
from meshcast.jobs.nodes.drawable import check_drawable_parts
from meshcast.jobs.nodes.flattening import Detail, program_body
from meshcast.jobs.nodes.job import JobTrace, RankClass, classes_of, facts_of
from meshcast.jobs.nodes.job_groups import Ints, JobGroups
from meshcast.jobs.nodes.kernels_as_pieces import collective_pieces, computing, host_copy, timed, waiting
from meshcast.jobs.nodes.pieces import RECEIVING, Piece, RankBody, Waits
from meshcast.jobs.nodes.replaying import replayed
from meshcast.jobs.nodes.starting import with_longer_starts
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.step import Message, StepParts
from meshcast.jobs.pipeline.walk import (
    EndCollective,
    adds_gradients,
    gradient_sums,
    last_passes,
    message_number,
    stage_positions,
    task_programs,
    tied_sum,
    update_pieces,
)
from meshcast.simulate import PassWork, PipelineRun, Task

STREAMING, LAST_OUT = "the optimizer's state, from the host and back", "its first piece in and last piece out"
# Streams beyond the channels of programs; sends to stage d have SENDING + d. With one channel, that of programs is all.
ONE_CHANNEL, REDUCING, SENDING = 1, FIRST_JOB_STREAM, FIRST_JOB_STREAM + 1


def pipeline_trace(pipeline: Pipeline, step: StepParts, run: PipelineRun, detail: Detail) -> JobTrace:
    """What every rank of a pipeline does; ranks of a stage are equal, and stages follow each other.

    Args:
        pipeline: The pipeline.
        step: Its parts on healthy devices.
        run: Its step in time.
        detail: What the trace should hold.

    Raises:
        InfeasibleError: A program does not fit into the devices' memory, so there is no step.
        UnsupportedError: Devices are not all alike, or passes run in pairs.
    """
    check_drawable_parts(step)
    groups, stages = stage_bodies(pipeline, step, detail)
    classes = [found for stage in stages for found in stage.classes(groups)]
    makespan, duration = run.makespan, run.duration
    if shares_channel(step) and not detail.unroll:
        # Folded collectives hold the channel for all their turns at once: what is written is a step of its own.
        makespan = replayed(pipeline.name, classes, groups, shared=True)[1].duration
        duration = makespan if run.schedule.barrier else duration
    first = step.estimates[0].programs["forward"].run
    said = facts_of(first, pipeline.devices)
    if not run.schedule.barrier:
        said[STEPS_OVERLAP] = True
    return JobTrace(
        name=pipeline.name,
        groups=groups,
        classes=with_longer_starts(classes, first.device),
        step_s=duration,
        makespan_s=makespan,
        metadata=said,
    )


def shares_channel(step: StepParts) -> bool:
    """Whether all communication of a rank takes turns."""
    return step.estimates[0].programs["forward"].run.options.run.channels == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNodes:
    """Where a task is among the nodes of its stage: what it begins behind, what it ends with, its seconds undisturbed."""

    entry: Waits
    made: Waits
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageBody:
    """The nodes of the ranks of one stage.

    Attributes:
        ranks: The ranks of the stage.
        body: All nodes.
        tasks: Its tasks, in order.
        passed: The nodes that its last task ends with, and where it waits for that, those that send its result.
        reduced: The last reductions of its gradients; none where it has none.
    """

    ranks: Ints
    body: RankBody
    tasks: tuple[TaskNodes, ...]
    passed: Waits
    reduced: Waits

    def classes(self, groups: JobGroups) -> list[RankClass]:
        """The classes of the stage's ranks: those that take no part in some collective are apart."""
        return classes_of(self.body, self.ranks, groups)


def stage_bodies(pipeline: Pipeline, step: StepParts, detail: Detail) -> tuple[JobGroups, tuple[StageBody, ...]]:
    """The nodes of every stage's ranks, and the groups that they communicate in."""
    groups = JobGroups(ranks=pipeline.devices)
    parts = _Parts(groups=groups, detail=detail)
    return groups, tuple(
        _Stage(pipeline=pipeline, step=step, stage=stage, groups=groups, parts=parts).traced()
        for stage in range(pipeline.stages)
    )


@dataclass(slots=True, kw_only=True)
class _Parts:
    """Bodies of the programs of parts, each made once: equal parts are the same object."""

    groups: JobGroups
    detail: Detail
    _bodies: dict[tuple[int, str], tuple[RankBody, Waits, float]] = field(default_factory=dict)
    _arguments: dict[tuple[int, str], str] = field(default_factory=dict)

    def body(self, estimate: PartEstimate, name: str) -> tuple[RankBody, Waits, float]:
        """A program's body, the nodes that it ends with, and its seconds."""
        key = (id(estimate), name)
        if key not in self._bodies:
            run = estimate.programs[name].run
            # Short, as names of values make up a good part of a file: the part's number and the program's first letter.
            part = len({of_part for of_part, _ in self._bodies} - {id(estimate)})
            # Weights, gradients and the like have one name in all programs of a part.
            arguments = zip(run.workload.body.inputs, run.workload.arguments, strict=False)
            names = {value: self._argument(estimate, part, argument.name) for value, argument in arguments}
            body = program_body(run, self.groups, self.detail, prefix=f"{part}{name[0]}", names=names)
            self._bodies[key] = body, body.leaves(), run.timeline.duration
        return self._bodies[key]

    def _argument(self, estimate: PartEstimate, part: int, path: str) -> str:
        return self._arguments.setdefault((id(estimate), path), f"{part}a{len(self._arguments)}")


@dataclass(slots=True, kw_only=True)
class _Stage:
    """One stage's body as it grows."""

    pipeline: Pipeline
    step: StepParts
    stage: int
    groups: JobGroups
    parts: _Parts
    body: RankBody = field(default_factory=RankBody)
    tails: Waits = ()  # what the next task follows
    sent: dict[int, int] = field(default_factory=dict)  # the last send on each channel
    reduced: Waits = ()  # the last reduction

    def traced(self) -> StageBody:
        """All of it."""
        schedule, tasks = self.step.schedule, []
        last = last_passes(self.step, self.stage)
        behind = self.pipeline.reduction is not None and self.pipeline.reduction.buckets == 0
        for index, task in enumerate(schedule.orders[self.stage]):
            position = schedule.position(self.stage, task.chunk)
            entry, seconds = self._task(task, position)
            made = self.tails
            tasks.append(TaskNodes(entry=entry, made=made, seconds=seconds))
            # Before the reduction, which other stages do not wait for: readers with one stream go by the numbers.
            if task.work is not PassWork.WEIGHT:
                self._send(task, position)
            if last.get(task.chunk) == index and not behind:
                self._reduce(position, entry, seconds, made)
        for chunk in last if behind else ():
            self._reduce(schedule.position(self.stage, chunk), (), 0.0, self.tails)
        passed, reduced = self.tails, self.reduced
        self.tails = (*self.tails, *self.reduced)
        if (tied := tied_sum(self.pipeline, self.step, self.stage)) is not None:
            self.tails = (self._collective(tied.label, tied, self.tails, ()),)
        for position in stage_positions(self.step, self.stage):
            self._update(position)
        size = self.pipeline.mesh.size
        return StageBody(
            ranks=np.arange(self.stage * size, (self.stage + 1) * size), body=self.body, tasks=tuple(tasks), passed=passed,
            reduced=reduced,
        )  # fmt: skip

    def _task(self, task: Task, position: int) -> tuple[Waits, float]:
        """Adds a task; what it begins behind, and how long it takes."""
        estimate = self.step.estimates[position]
        entry = (*self.tails, *self._receive(task, position))
        self.tails = entry
        seconds = 0.0
        for name in task_programs(self.step, task, position):
            seconds += self._program(estimate, name)
        if adds_gradients(self.step, task, position):
            said: dict[str, Attribute] = {"inputs": (), "outputs": (), "op_type": "accumulate"}
            piece = computing(
                "gradients added up", estimate.accumulation_s, estimate.gradient_bytes / 4, estimate.accumulated_bytes, said
            )  # fmt: skip
            self.tails = (self.body.add(piece, self.tails),)
            seconds += estimate.accumulation_s
        return entry, seconds

    def _program(self, estimate: PartEstimate, name: str) -> float:
        body, leaves, seconds = self.parts.body(estimate, name)
        first = self.body.append(body, self.tails)
        if leaves:
            self.tails = tuple([first + leaf for leaf in leaves])
        return seconds

    def _receive(self, task: Task, position: int) -> Iterator[int]:
        """The receive that a task waits for, if what it takes comes from another stage."""
        if task.work is PassWork.FORWARD and position > 0:
            message, origin = self.step.forward[position - 1], position - 1
        elif task.work is PassWork.BACKWARD and position + 1 < self.step.schedule.positions:
            message, origin = self.step.backward[position + 1], position + 1
        else:
            return
        if message is not None:
            said = self._message(task, origin, message) | {"duration_ns": 0.0}
            piece = Piece(
                label=f"{task} from stage {self._stage_of(origin)}", kind=NodeType.RECEIVE, seconds=0.0, stream=RECEIVING,
                attributes=said, rank_value=self._peer("comm_src", origin),
            )  # fmt: skip
            yield self.body.add(piece)

    def _send(self, task: Task, position: int) -> None:
        """The send of what a task gives to another stage."""
        forward = task.work is PassWork.FORWARD
        message = (self.step.forward if forward else self.step.backward)[position]
        if message is None:
            return
        target = position + 1 if forward else position - 1
        stage = self._stage_of(target)
        stream = self._channel(SENDING + stage)
        said = self._message(task, position, message) | timed(message.seconds, stream)
        piece = Piece(
            label=f"{task} to stage {stage}", kind=NodeType.SEND, seconds=message.seconds, stream=stream, attributes=said,
            rank_value=self._peer("comm_dst", target),
        )  # fmt: skip
        before = self.sent.get(stage)
        self.sent[stage] = self.body.add(piece, self.tails, () if before is None else (before,))
        if not self.pipeline.overlap_sends:
            self.tails = (self.sent[stage],)

    def _message(self, task: Task, origin: int, message: Message) -> dict[str, Attribute]:
        """Attributes that a send and its receive share: the tag is one for each message of the step."""
        which = message_number(self.step, task, origin)
        size = message.collective.input_bytes
        return timed(0.0, RECEIVING) | {"comm_size": size, "comm_tag": which, "inputs": (), "outputs": ()}

    def _channel(self, own: int) -> int:
        """The stream of a message or a reduction: its own, unless a rank has one for all."""
        return ONE_CHANNEL if shares_channel(self.step) else own

    def _stage_of(self, position: int) -> int:
        return self.step.schedule.place(position)[0]

    def _peer(self, attribute: str, position: int) -> int:
        distance = (self._stage_of(position) - self.stage) * self.pipeline.mesh.size
        return self.groups.peers(attribute, (np.arange(self.groups.ranks) + distance) % self.groups.ranks)

    def _reduce(self, position: int, entry: Waits, seconds: float, made: Waits) -> None:
        """Adds the sums of a part's gradients, in buckets beside the pass that makes them.

        The pass begins behind `entry`, takes so many seconds and ends with the nodes `made`.
        """
        sums = gradient_sums(self.pipeline, self.step, position)
        if not sums:
            return
        buckets = max(1, self.pipeline.reduction.buckets) if self.pipeline.reduction else 1
        ready: Waits = entry
        for bucket in range(1, buckets + 1):
            if bucket < buckets:
                timer = waiting(f"bucket {bucket} of {buckets} ready", seconds / buckets, host=True)
                ready = (self.body.add(timer, order=ready),)
            else:
                ready = made
            for each in sums:
                label, piece = f"{each.label}, bucket {bucket}", each.share(buckets)
                if buckets > 1 and shares_channel(self.step):  # by readers that start every piece anew
                    piece = replace(piece, seconds=self.step.network.seconds(piece.collective))
                self.reduced = (self._collective(label, piece, ready, self.reduced),)

    def _collective(self, label: str, what: EndCollective, data: Waits, order: Waits) -> int:
        said: dict[str, Attribute] = {"inputs": (), "outputs": ()}
        stream = self._channel(REDUCING)
        (piece,) = collective_pieces(label, what.collective, what.devices, what.seconds, stream, self.groups, said)
        return self.body.add(piece, data, order)

    def _update(self, position: int) -> None:
        """Adds the optimizer of a part, the copies of its state, and the gathering of what it has updated."""
        begun = self.tails
        for piece in update_pieces(self.pipeline, self.step, position):
            if piece.program is not None:
                self._program(self.step.estimates[position], piece.program)
            elif piece.collective is not None:
                self.tails = (self._collective(piece.collective.label, piece.collective, self.tails, ()),)
            else:
                self._stream(self.step.estimates[position], begun)

    def _stream(self, estimate: PartEstimate, begun: Waits) -> None:
        """Copies of the optimizer's state beside its update, and what is beside nothing (`jobs.pipeline.offload`)."""
        size, pieces = estimate.host_bytes, self.pipeline.host_state_pieces
        seconds = size / host_rate(estimate.programs["update"].run.device)
        beside = self.body.add(host_copy(STREAMING, seconds, size, 1), begun)
        alone = host_copy(LAST_OUT, seconds / pieces, -(-size // pieces), 1)
        self.tails = (self.body.add(alone, (*self.tails, beside)),)
