"""What the ranks of a job run in a step: programs, each so many times, and what is sent between and behind them.

Ranks that do the same are one `RankWork`: all of a program's, those of each stage of a pipeline. Every table of a report adds up
these, so that none of them depends on how much of a step is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from meshcast.jobs import (
    EndCollective,
    Message,
    PartEstimate,
    Pipeline,
    Run,
    StepParts,
    described_kernel,
    gradient_sums,
    stage_positions,
    task_programs,
    tied_sum,
    update_pieces,
)
from meshcast.lower import Kernel
from meshcast.simulate import PassWork, Repeat, Span, Timeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassRun:
    """A program that a rank runs `times` times in a step; `label` says as what."""

    label: str
    run: Run
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sent:
    """A message to another stage, `times` times in a step, from each rank to the one `distance` ranks on."""

    message: Message
    times: int
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankWork:
    """Ranks that run the same.

    Attributes:
        label: What they are; empty where all ranks are one kind.
        first: The first of them; the others follow.
        ranks: How many.
        passes: Their programs.
        sent: Their messages.
        ends: Collectives behind the passes.
    """

    label: str
    first: int
    ranks: int
    passes: tuple[PassRun, ...]
    sent: tuple[Sent, ...] = ()
    ends: tuple[EndCollective, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """A kernel at its place: in which pass and loops it stands, how often it runs and how long that takes in all."""

    kernel: Kernel
    run: Run
    label: str
    loops: tuple[tuple[str, int], ...]
    count: int
    seconds: float

    @property
    def name(self) -> str:
        """Its kind with the shape that matters."""
        if (found := self.kernel.collective) is not None:
            return f"{found.kind.replace('_', '-')} over {found.group}"
        return described_kernel(self.kernel, self.run.lowered)

    @property
    def kind(self) -> str:
        """Its class: of a collective what it does."""
        found = self.kernel.collective
        return self.kernel.kind.value if found is None else found.kind.replace("_", "-")

    @property
    def flops(self) -> float:
        """Of one launch."""
        return self.kernel.matrix_flops + self.kernel.vector_flops + self.kernel.transcendentals

    @property
    def bytes(self) -> int:
        """To and from memory, of one launch; of a collective none are counted."""
        return 0 if self.kernel.collective is not None else self.kernel.read_bytes + self.kernel.written_bytes


def program_work(run: Run) -> tuple[RankWork, ...]:
    """The ranks of one program: all run the same."""
    return (RankWork(label="", first=0, ranks=run.devices, passes=(PassRun(label="step", run=run),)),)


def pipeline_work(pipeline: Pipeline, step: StepParts) -> tuple[RankWork, ...]:
    """The ranks of a pipeline, a kind for each stage."""
    return tuple(_stage(pipeline, step, stage) for stage in range(pipeline.stages))


def _stage(pipeline: Pipeline, step: StepParts, stage: int) -> RankWork:
    schedule, size = step.schedule, pipeline.mesh.size
    programs: Counter[tuple[int, str]] = Counter()
    estimates: dict[int, PartEstimate] = {}
    messages: Counter[tuple[int, int]] = Counter()
    known: dict[int, Message] = {}
    for task in schedule.orders[stage]:
        position = schedule.position(stage, task.chunk)
        estimate = step.estimates[position]
        estimates[id(estimate)] = estimate
        programs.update((id(estimate), name) for name in task_programs(step, task, position))
        forward = task.work is PassWork.FORWARD
        message = None if task.work is PassWork.WEIGHT else (step.forward if forward else step.backward)[position]
        if message is not None and message.seconds:
            other = schedule.place(position + 1 if forward else position - 1)[0]
            known[id(message)] = message
            messages[id(message), (other - stage) * size] += 1
    ends: list[EndCollective] = []
    for position in stage_positions(step, stage):
        estimate = step.estimates[position]
        estimates[id(estimate)] = estimate
        ends.extend(gradient_sums(pipeline, step, position))
        for piece in update_pieces(pipeline, step, position):
            if piece.program is not None:
                programs[id(estimate), piece.program] += 1
            elif piece.collective is not None:
                ends.append(piece.collective)
    if (tied := tied_sum(pipeline, step, stage)) is not None:
        ends.append(tied)
    return RankWork(
        label=f"stage {stage}",
        first=stage * size,
        ranks=size,
        passes=tuple(
            PassRun(label=name, run=estimates[part].programs[name].run, times=times)
            for (part, name), times in programs.items()
        ),
        sent=tuple(
            Sent(message=known[message], times=times, distance=far) for (message, far), times in messages.items()
        ),
        ends=tuple(ends),
    )


def launches(ranks: RankWork) -> Iterator[Launches]:
    """Every kernel of a rank with its place."""
    for each in ranks.passes:
        for span, count, loops in _spans(each.run.timeline, each.times, ()):
            yield Launches(
                kernel=span.kernel, run=each.run, label=each.label, loops=loops, count=count,
                seconds=count * (span.end - span.start),
            )  # fmt: skip


def _spans(
    timeline: Timeline, count: int, loops: tuple[tuple[str, int], ...]
) -> Iterator[tuple[Span, int, tuple[tuple[str, int], ...]]]:
    for span in timeline.spans:
        if isinstance(span, Repeat):
            around = (*loops, (span.label, span.trips)) if span.trips != 1 or span.label else loops
            yield from _spans(span.body, count * span.trips, around)
        else:
            yield span, count, loops
