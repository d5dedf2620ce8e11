"""Which of a kernel's bytes are f16: TPUs up to v5p compute in f32 alone, and turn each of them where it is read or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from meshcast.lower.kernel import Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.workload import Tensor

HALF = "f16"


def has_halves(tensors: Sequence[Tensor]) -> bool:
    """Whether any value of a program is f16."""
    return any(tensor.dtype == HALF for tensor in tensors)


def with_halves(schedule: Schedule, tensors: Sequence[Tensor]) -> Schedule:
    """The schedule with `Kernel.halves` of every kernel, whatever type it computes in."""
    return replace(schedule, steps=tuple([_step(step, tensors) for step in schedule.steps]))


def _step(step: Step, tensors: Sequence[Tensor]) -> Step:
    if not isinstance(step, Kernel):
        return with_inner_blocks(step, partial(with_halves, tensors=tensors))
    read = sum(size for value, size in zip(step.reads, step.operand_bytes, strict=True) if tensors[value].dtype == HALF)
    # An update writes a part of its buffer: what is written of each result is its share of all.
    made = [tensors[value] for value in step.writes]
    whole = sum(tensor.bytes for tensor in made) or 1
    written = round(step.written_bytes * sum(t.bytes for t in made if t.dtype == HALF) / whole)
    return replace(step, halves=(read, written))
