"""`PipelineSchedule`: in which order each stage of a pipeline works on its microbatches.

A stage is a set of devices that runs one part of the model, or several (`chunks`, the virtual stages of Narayanan 2021).
The parts of the whole model are numbered by their `position`, from the input to the loss: a microbatch goes forward
through positions 0, 1, ... and backward through the same in reverse. A schedule fixes the order alone; when things happen
follows from their times (`simulate.pipelines.simulation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from meshcast.base import UsageError

# Which positions a stage holds: `loop`, stage d has d, d + p, d + 2p, ...; `v`, d and 2p - 1 - d.
Placement = Literal["loop", "v"]


class PassWork(StrEnum):
    """The kinds of pass that a stage makes over a microbatch."""

    FORWARD = "F"
    BACKWARD = "B"  # where the backward pass is split, the gradient of the input alone
    WEIGHT = "W"  # the gradient of the weights, in split schedules


class Task(NamedTuple):
    """One microbatch through one chunk of a stage."""

    work: PassWork
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.work.value}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


Order = tuple[Task, ...]


# A schedule is itself alone (`eq=False`): comparing thousands of tasks is never what is wanted, and it can be a key.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineSchedule:
    """The order of every stage's tasks.

    Attributes:
        name: What it is called, a key of `SCHEDULES` or the user's own.
        stages: Number of stages.
        microbatches: Number of microbatches of a step.
        chunks: Parts of the model that each stage holds.
        orders: For each stage, its tasks in order.
        split: Whether the backward pass is split in two tasks, B and W.
        placement: Which positions a stage holds.
        barrier: Whether all stages wait for each other between steps. Without, a stage goes on as soon as it can, which
            needs an optimizer that does not wait for a global norm (Qi 2024, section 4).
    """

    name: str
    stages: int
    microbatches: int
    chunks: int = 1
    orders: tuple[Order, ...]
    split: bool = False
    placement: Placement = "loop"
    barrier: bool = True

    @property
    def positions(self) -> int:
        """Parts of the whole model."""
        return self.stages * self.chunks

    def position(self, stage: int, chunk: int) -> int:
        """The part of the model that a stage's chunk is."""
        if self.placement == "v" and chunk % 2:
            return (chunk + 1) * self.stages - 1 - stage
        return chunk * self.stages + stage

    def place(self, position: int) -> tuple[int, int]:
        """(stage, chunk) of a part of the model."""
        chunk, stage = divmod(position, self.stages)
        return (self.stages - 1 - stage if self.placement == "v" and chunk % 2 else stage), chunk


def checked(schedule: PipelineSchedule) -> PipelineSchedule:
    """The schedule, after making sure that every stage does everything once.

    Raises:
        UsageError: A task is missing, done twice, or unknown.
    """
    kinds = tuple(PassWork) if schedule.split else (PassWork.FORWARD, PassWork.BACKWARD)
    wanted = {Task(k, m, c) for k in kinds for m in range(schedule.microbatches) for c in range(schedule.chunks)}
    if len(schedule.orders) != schedule.stages:
        raise UsageError(
            f"schedule {schedule.name!r} has orders for {len(schedule.orders)} of {schedule.stages} stages"
        )
    for stage, order in enumerate(schedule.orders):
        found = set(order)
        for problem, tasks in (("lacks", wanted - found), ("does not know", found - wanted)):
            if tasks:
                named = ", ".join(map(str, sorted(tasks)[:4]))
                raise UsageError(
                    f"schedule {schedule.name!r}: stage {stage} {problem} {len(tasks)} tasks, e.g. {named}"
                )
        if len(order) != len(found):
            twice = next(task for index, task in enumerate(order) if task in order[:index])
            raise UsageError(f"schedule {schedule.name!r}: stage {stage} does {twice} twice")
    return schedule


Generator = Callable[[int, int, int], PipelineSchedule]
MOST_PASSES = 2**21  # stages x microbatches x virtual stages: every pass is a task of a schedule, written out


def counts_checked(name: str, stages: int, microbatches: int, chunks: int, *, most_chunks: int | None = 1) -> None:
    """Refuses counts that a schedule cannot have.

    Raises:
        UsageError: One is not positive, they are more than can be written out, or the schedule has no virtual stages.
    """
    for what, count in (("stages", stages), ("microbatches", microbatches), ("virtual stages", chunks)):
        if count < 1:
            raise UsageError(f"{name}: {count} {what}", where=what, fix="at least 1")
    if stages * microbatches * chunks > MOST_PASSES:
        raise UsageError(
            f"{name}: {stages} stages x {microbatches:,} microbatches x {chunks} parts are more than {MOST_PASSES:,} passes",
            where="microbatches",
            fix="use fewer microbatches: a step's time grows evenly with them",
        )
    if most_chunks is not None and chunks > most_chunks:
        raise UsageError(
            f"{name} has no virtual stages, {chunks} were asked for",
            where="virtual_stages",
            fix='use schedule = "interleaved", or leave virtual_stages out',
        )
