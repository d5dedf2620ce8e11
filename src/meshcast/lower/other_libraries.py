"""Kernels that a framework takes from another library than the compiler does, or otherwise than it does."""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.kernel import BranchStep, LoopStep, Schedule, Step
from meshcast.workload import Attention, AttentionLibrary, Gemm


def with_libraries(schedule: Schedule, *, attention: AttentionLibrary, padded: bool) -> Schedule:
    """The schedule with every fused attention call and every product by a library's kernels, in inner blocks too.

    Args:
        schedule: The schedule of a block.
        attention: Whose fused attention runs.
        padded: Whether rows of products are padded to whole vectors where that is faster. XLA and Inductor do that; eager
            PyTorch hands cuBLAS what it has.
    """
    steps = tuple([_replaced(step, attention=attention, padded=padded) for step in schedule.steps])
    return replace(schedule, steps=steps)


def _replaced(step: Step, *, attention: AttentionLibrary, padded: bool) -> Step:
    if isinstance(step, LoopStep):
        return replace(step, body=with_libraries(step.body, attention=attention, padded=padded))
    if isinstance(step, BranchStep):
        bodies = tuple(with_libraries(body, attention=attention, padded=padded) for body in step.bodies)
        return replace(step, bodies=bodies)
    if isinstance(step.geometry, Attention) and step.geometry.library == "cudnn":  # else the call brings its own kernel
        return replace(step, geometry=replace(step.geometry, library=attention))
    if isinstance(step.geometry, Gemm) and step.geometry.padded != padded:
        return replace(step, geometry=replace(step.geometry, padded=padded))
    return step
