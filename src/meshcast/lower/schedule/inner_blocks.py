"""Schedules inside of steps: bodies of loops and of branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step

FILLING = frozenset({"stablehlo.constant", "stablehlo.broadcast_in_dim"})


_COPIED = FILLING | {"copy"}  # of one filled value, for each loop's value that begins with it


def only_fills(step: Step, stacks: frozenset[int] | set[int]) -> bool:
    """Whether a step is a kernel that does nothing but fill some of these stacks, for loops to begin with."""
    return (
        isinstance(step, Kernel)
        and bool(step.writes)
        and stacks.issuperset(step.writes)
        and not FILLING.isdisjoint(step.ops)
        and _COPIED.issuperset(step.ops)
    )


def with_inner_blocks(step: Step, changed: Callable[[Schedule], Schedule]) -> Step:
    """A step with the blocks in it changed: the body of a loop, all of a branch's; a kernel has none, and stays as it is."""
    if isinstance(step, LoopStep):
        return replace(step, body=changed(step.body))
    if isinstance(step, BranchStep):
        return replace(step, bodies=tuple([changed(body) for body in step.bodies]))
    return step
