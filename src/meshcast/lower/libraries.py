"""Kernels that a framework takes from another library than the compiler does."""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.kernel import BranchStep, LoopStep, Schedule, Step
from meshcast.workload.graph import Attention, AttentionLibrary


def with_attention(schedule: Schedule, library: AttentionLibrary) -> Schedule:
    """The schedule with every fused attention call by a library's kernels; inner blocks are looked through too."""
    return replace(schedule, steps=tuple(_replaced(step, library) for step in schedule.steps))


def _replaced(step: Step, library: AttentionLibrary) -> Step:
    if isinstance(step, LoopStep):
        return replace(step, body=with_attention(step.body, library))
    if isinstance(step, BranchStep):
        return replace(step, bodies=tuple(with_attention(body, library) for body in step.bodies))
    if isinstance(step.geometry, Attention):
        return replace(step, geometry=replace(step.geometry, library=library))
    return step
