"""What a run recomputes where nobody says: the least with which it is predicted to fit.

Recomputation costs time, so that whoever tunes a run takes no more of it than memory asks for. The stack's habit is tried
first. Where that does not fit, XLA gathers less ahead by itself: its scheduler keeps to a limit of memory, and schedules again
with less overlap where it is passed (`memory_limit` in latency_hiding_scheduler.cc). Then comes each step of `MORE` behind the
habit, and where the stack's recipes do so what layers keep is put into the host's memory. Where even the last does not fit,
the habit stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from meshcast.jobs.stated.parallelism import PlanWords
from meshcast.jobs.stated.target import RunTarget
from meshcast.zoo import Remat

T = TypeVar("T")
MORE: tuple[Remat, ...] = ("none", "products", "selective", "full")
"""What plans recompute, each more than the one before it."""
_AHEAD = "prefetch"


def fitting(target: RunTarget, answer: Callable[[RunTarget], T], memory: Callable[[T], float]) -> tuple[RunTarget, T]:
    """The run with what it is taken to recompute, and what `answer` says of it.

    Args:
        target: A run that lacks nothing.
        answer: Asked of the run with one choice of recomputation after the other.
        memory: Bytes of a device in such an answer.

    Raises:
        MeshcastError: The plan cannot be carried out.
    """
    assert target.on is not None
    first, room = answer(target), target.on.device.memory_bytes
    if memory(first) <= room:
        return target, first
    for other in (*_less_ahead(target), *_further(target)):
        found = answer(other)
        if memory(found) <= room:
            return other, found
    return target, first


def _less_ahead(target: RunTarget) -> Iterator[RunTarget]:
    """The run without gathering a turn of its loops ahead, where a compiler decides on that."""
    rewrites = target.overlap.split(",")
    if target.stack is None or target.stack.framework != "jax" or _AHEAD not in rewrites:
        return
    yield replace(
        target,
        overlap=",".join(each for each in rewrites if each != _AHEAD),
        assumptions=(*target.assumptions, "weights are not gathered ahead: with that it is predicted not to fit"),
    )


def _further(target: RunTarget) -> Iterator[RunTarget]:
    """The run with more recomputation than its stack's habit, step by step; nothing where it is told."""
    habit = str(target.plan.get("remat", ""))
    everything = target.stack.full if target.stack is not None else MORE[-1]
    steps = (*MORE[:-1], everything)
    if target.recomputation_told or habit not in steps:
        return
    further: list[PlanWords] = [{"remat": word} for word in steps[steps.index(habit) + 1 :]]
    if target.stack is not None and target.stack.offloads and target.on and target.on.device.host_bandwidth is not None:
        further.append({"remat": everything, "offload": "activations"})
    for changes in further:
        said = ", ".join(f"{name}={word}" for name, word in changes.items())
        yield replace(
            target,
            plan={**target.plan, **changes},
            assumptions=(*target.assumptions, f"{said}: with less it is predicted not to fit"),
        )
