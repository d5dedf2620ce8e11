"""A pipeline's step as slices: tasks where the schedule put them, the kernels of their programs inside, messages between stages.

Times are those of `simulate.pipelines`: a task's programs run one after the other from its start, a message leaves when its task
has ended and those before it in the same direction have arrived, and the k-th bucket of gradients goes when a k-th of the last
backward pass is over. Where a stage waits nothing is drawn on its streams: that is its bubble.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from meshcast.base import UnsupportedError
from meshcast.estimate import idle_watts
from meshcast.hardware import FROM_HOST, TO_HOST, host_rate
from meshcast.jobs import (
    PROGRAM_OF,
    EndCollective,
    Message,
    PartEstimate,
    Pipeline,
    StepParts,
    adds_gradients,
    check_drawable_parts,
    gradient_sums,
    last_passes,
    message_number,
    shares_channel,
    stage_positions,
    task_programs,
    tied_sum,
    total_bytes,
    update_pieces,
)
from meshcast.simulate import PassWork, PipelineRun, Task
from meshcast.traces.program_slices import MOST_UNROLLED, Arrows, ProgramSlices, facts_of, taking_part
from meshcast.traces.slices import (
    COMPUTE_TRACK,
    COPY_TRACK,
    TASK_TRACK,
    Description,
    JobTimeline,
    Level,
    MovedBytes,
    RankTimeline,
    Slice,
    SliceFact,
)

GRADIENTS_TRACK = "gradients"


def pipeline_timeline(pipeline: Pipeline, step: StepParts, run: PipelineRun, unroll: bool | None) -> JobTimeline:
    """A step of a pipeline, all ranks of a stage once.

    Args:
        pipeline: The pipeline.
        step: Its parts on their hardware.
        run: Its step in time.
        unroll: Whether every turn of a loop is drawn; None for as long as that are not too many.
    """
    check_drawable_parts(step)
    if shares_channel(step):
        raise UnsupportedError(
            "messages, gradients and collectives of a pipeline are drawn on channels of their own", where="--channels 1",
            fix="leave it out, or write --format chakra",
        )  # fmt: skip
    size = pipeline.mesh.size
    drawn = _Drawn(pipeline=pipeline, step=step, run=run, unroll=unroll is not False)
    stages = range(pipeline.stages)
    slices = sum(drawn.count(stage) for stage in stages)
    if unroll is None and slices > MOST_UNROLLED:
        drawn = _Drawn(pipeline=pipeline, step=step, run=run, unroll=False)
        slices = sum(drawn.count(stage) for stage in stages)
    first = step.estimates[0].programs["forward"].run
    kinds = tuple(
        RankTimeline(
            ranks=np.arange(stage * size, (stage + 1) * size), label=f"stage {stage}",
            idle_watts=idle_watts(first.device), most_watts=first.device.tdp_watts, slices=partial(drawn.slices, stage),
            memory=partial(drawn.memory, stage),
        )
        for stage in stages
    )  # fmt: skip
    facts = facts_of(first) | {
        "schedule": run.schedule.name, "stages": pipeline.stages, "microbatches": run.schedule.microbatches,
        "bubble": run.bubble,
    }  # fmt: skip
    return JobTimeline(
        name=pipeline.name, ranks=pipeline.devices, kinds=kinds, step_s=run.duration, facts=facts, slices=slices,
        folded=not drawn.unroll,
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Drawn:
    pipeline: Pipeline
    step: StepParts
    run: PipelineRun
    unroll: bool
    _programs: dict[tuple[int, str], ProgramSlices] = field(default_factory=dict)
    _messages: dict[tuple[int, str], Description] = field(default_factory=dict)

    def slices(self, stage: int, rank: int) -> Iterator[Slice]:
        """Everything that a rank of a stage does."""
        arrows = Arrows(rank=rank, ranks=self.pipeline.devices)
        yield from taking_part(self._tasks(stage, arrows), rank)
        yield from self._sent(stage, rank)
        yield from self._received(stage, rank)
        yield from taking_part(self._finish(stage, arrows), rank)

    def count(self, stage: int) -> int:
        """About how many slices a rank of a stage has."""
        order = self.step.schedule.orders[stage]
        found = 4 * len(order)
        for task in order:
            position = self.step.schedule.position(stage, task.chunk)
            found += sum(
                self._program(self.step.estimates[position], name).count()
                for name in task_programs(self.step, task, position)
            )
        return found

    def _program(self, estimate: PartEstimate, name: str) -> ProgramSlices:
        key = (id(estimate), name)
        if key not in self._programs:
            self._programs[key] = ProgramSlices(run=estimate.programs[name].run, unroll=self.unroll)
        return self._programs[key]

    def _tasks(self, stage: int, arrows: Arrows) -> Iterator[Slice]:
        schedule, timed = self.step.schedule, self.run.stages[stage]
        for task, start, end in zip(schedule.orders[stage], timed.starts, timed.ends, strict=True):
            position = schedule.position(stage, task.chunk)
            estimate = self.step.estimates[position]
            facts: dict[str, SliceFact] = {
                "microbatch": task.microbatch,
                "position": position,
                "part": estimate.part.name,
            }
            what = Description(name=f"{PROGRAM_OF[task.work]} {task.microbatch}", category="task", facts=facts)
            yield Slice(what=what, track=TASK_TRACK, start=start, end=end)
            now = start
            for name in task_programs(self.step, task, position):
                program = self._program(estimate, name)
                yield from program.slices(arrows, now)
                now += program.run.timeline.duration
            if adds_gradients(self.step, task, position):
                moved: dict[str, SliceFact] = {
                    "bytes": estimate.accumulated_bytes,
                    "bound": "memory",
                    "origin": "analytical",
                }
                added = Description(name="gradients added up", category="kernel", facts=moved)
                yield Slice(what=added, track=COMPUTE_TRACK, start=now, end=now + estimate.accumulation_s)

    def _sends(self, stage: int) -> Iterator[tuple[int, int, int, Message, Task, float]]:
        """(number, position, stage that it goes to, message, task, when it leaves) of what a stage sends."""
        schedule, timed = self.step.schedule, self.run.stages[stage]
        free: dict[int, float] = {}
        for task, end in zip(schedule.orders[stage], timed.ends, strict=True):
            if task.work is PassWork.WEIGHT:
                continue
            position = schedule.position(stage, task.chunk)
            forward = task.work is PassWork.FORWARD
            message = (self.step.forward if forward else self.step.backward)[position]
            if message is None or not message.seconds:
                continue
            other = schedule.place(position + 1 if forward else position - 1)[0]
            leaves = max(end, free.get(other, 0.0))
            free[other] = leaves + message.seconds
            yield message_number(self.step, task, position), position, other, message, task, leaves

    def _sent(self, stage: int, rank: int) -> Iterator[Slice]:
        for number, _, other, message, task, leaves in self._sends(stage):
            distance = (other - stage) * self.pipeline.mesh.size
            yield Slice(
                what=self._message(message, "send", distance, other, task), track=f"to stage {other}", start=leaves,
                end=leaves + message.seconds, leads_to=(self._arrow(number, rank),),
            )  # fmt: skip

    def _received(self, stage: int, rank: int) -> Iterator[Slice]:
        size = self.pipeline.mesh.size
        for sender in range(self.pipeline.stages):
            for number, _, other, message, task, leaves in self._sends(sender):
                if other != stage:
                    continue
                distance = (sender - stage) * size
                yield Slice(
                    what=self._message(message, "receive", distance, sender, task), track=f"from stage {sender}",
                    start=leaves, end=leaves + message.seconds, follows=(self._arrow(number, rank + distance),),
                )  # fmt: skip

    def _arrow(self, number: int, sender: int) -> int:
        """The arrow of a message, odd: `Arrows` gives out even ones."""
        return 2 * (number * self.pipeline.devices + sender) + 1

    def _message(self, message: Message, side: str, distance: int, other: int, task: Task) -> Description:
        key = (id(message), f"{side} {distance} {task}")
        if key not in self._messages:
            size = message.collective.payload_bytes
            facts: dict[str, SliceFact] = {
                "kind": side, "bytes": size, "level": message.plan.level, "microbatch": task.microbatch, "peer_stage": other,
            }  # fmt: skip
            self._messages[key] = Description(
                name=f"{side} {PROGRAM_OF[task.work]} {task.microbatch}", category="send" if side == "send" else "receive",
                facts=facts, sent=message.plan.level_bytes if side == "send" else {},
                exchange=MovedBytes(kind=side, dtype="", input_bytes=size, output_bytes=size, peer=distance),
            )  # fmt: skip
        return self._messages[key]

    def _collective(self, what: EndCollective) -> Description:
        """A collective behind the passes, or a share of it."""
        collective, group = what.collective, what.collective.group
        facts: dict[str, SliceFact] = {
            "kind": collective.kind, "bytes": collective.payload_bytes, "over": str(group), "group_size": group.size,
            "algorithm": what.plan.algorithm, "level": what.plan.level,
        }  # fmt: skip
        exchange = MovedBytes(
            kind=collective.kind, dtype="", input_bytes=collective.input_bytes, output_bytes=collective.output_bytes,
            group=group, devices=what.devices,
        )  # fmt: skip
        return Description(name=what.label, category="collective", facts=facts, sent=what.sent, exchange=exchange)

    def _finish(self, stage: int, arrows: Arrows) -> Iterator[Slice]:
        """Sums of gradients, then the optimizer."""
        yield from self._reductions(stage)
        now = self._update_start(stage)
        if (tied := tied_sum(self.pipeline, self.step, stage)) is not None:
            yield Slice(what=self._collective(tied), track=GRADIENTS_TRACK, start=now - tied.seconds, end=now)
        for position in stage_positions(self.step, stage):
            estimate = self.step.estimates[position]
            for piece in update_pieces(self.pipeline, self.step, position):
                end = now + piece.seconds
                if piece.program is not None:
                    what = Description(name=piece.program, category="task", facts={"part": estimate.part.name})
                    yield Slice(what=what, track=TASK_TRACK, start=now, end=end)
                    yield from self._program(estimate, piece.program).slices(arrows, now)
                elif piece.collective is not None:
                    yield Slice(what=self._collective(piece.collective), track=GRADIENTS_TRACK, start=now, end=end)
                else:
                    yield from self._streamed(estimate, end)
                now = end

    def _streamed(self, estimate: PartEstimate, end: float) -> Iterator[Slice]:
        """State that comes from the host and goes back, both at once but for first and last piece (`jobs.pipeline.offload`)."""
        update = estimate.programs["update"].run
        begin = end - estimate.streaming_s - (estimate.predictions["update"].step_time_s or 0.0)
        length = estimate.host_bytes / host_rate(update.device)
        for kind, start in ((FROM_HOST, begin), (TO_HOST, end - length)):
            moved: dict[str, SliceFact] = {
                "kind": kind, "bytes": estimate.host_bytes, "bound": "memory", "origin": "analytical",
            }  # fmt: skip
            what = Description(name=f"optimizer state {kind}", category="copy", facts=moved)
            yield Slice(what=what, track=COPY_TRACK, start=start, end=start + length)

    def _update_start(self, stage: int) -> float:
        """When the optimizer of a stage begins."""
        pieces = (
            piece.seconds
            for position in stage_positions(self.step, stage)
            for piece in update_pieces(self.pipeline, self.step, position)
        )
        return self.run.stages[stage].end - sum(pieces)

    def _reductions(self, stage: int) -> Iterator[Slice]:
        timed = self.run.stages[stage]
        buckets = self.pipeline.reduction.buckets if self.pipeline.reduction else 1
        count = max(1, buckets)
        channel = 0.0
        for chunk, at in last_passes(self.step, stage).items():
            position = self.step.schedule.position(stage, chunk)
            shares = [each.share(count) for each in gradient_sums(self.pipeline, self.step, position)]
            drawn = [(self._collective(share), share.seconds) for share in shares]
            for bucket in range(1, count + 1):
                through = timed.starts[at] + bucket / count * (timed.ends[at] - timed.starts[at])
                channel = max(channel, through if buckets else timed.ready) if drawn else channel
                for what, seconds in drawn:
                    yield Slice(what=what, track=GRADIENTS_TRACK, start=channel, end=channel + seconds)
                    channel += seconds

    def memory(self, stage: int) -> tuple[Level, ...]:
        """Bytes over time: what stays, activations of microbatches in flight, and what tasks work with."""
        schedule, timed = self.step.schedule, self.run.stages[stage]
        mine = [self.step.estimates[schedule.position(stage, chunk)] for chunk in range(schedule.chunks)]
        done = PassWork.WEIGHT if schedule.split else PassWork.BACKWARD
        held, working = 0.0, [(0.0, 0.0)]
        live = [(0.0, 0.0)]
        for task, start, end in zip(schedule.orders[stage], timed.starts, timed.ends, strict=True):
            part = mine[task.chunk]
            if task.work is PassWork.FORWARD:
                held += total_bytes(part.saved)
            elif task.work is PassWork.BACKWARD and schedule.split:
                held += total_bytes(part.weight_saved)
            live.append((start, held))
            working.append((start, float(part.held.working_bytes.get(task.work, 0))))
            if task.work is done:
                held -= total_bytes(part.saved) + (total_bytes(part.weight_saved) if schedule.split else 0)
            live.append((end, held))
            working.append((end, 0.0))
        updating = max((part.working_bytes.get("update", 0) for part in mine), default=0)
        for at, used in ((self._update_start(stage), updating), (timed.end, 0)):
            live.append((at, held))
            working.append((at, float(used)))
        constant = {
            "parameters": sum(part.parameter_bytes for part in mine),
            "gradients": sum(part.gradient_bytes for part in mine),
            "optimizer state": sum(part.optimizer_bytes for part in mine),
        }
        fixed = float(sum(constant.values()))
        total = [(at, fixed + kept + used) for (at, kept), (_, used) in zip(live, working, strict=True)]
        return (
            _level("memory", total),
            *(_level(f"memory: {name}", [(0.0, float(size))]) for name, size in constant.items() if size),
            _level("memory: activations", live),
            _level("memory: working", working),
        )


def _level(name: str, steps: Sequence[tuple[float, float]]) -> Level:
    """A level from values in order of time; of several at one moment the last counts."""
    last = dict(steps)
    return Level(name=name, unit="B", steps=tuple(last.items()))
