"""What collectives spend waiting for other ranks: told where several ranks of one run were measured.

A collective's kernel runs on every rank of its group from when that rank is ready until all have what they need. The rank that
comes last waits for nobody: what the kernel takes there is the exchange itself, and what it takes longer on another rank is
waiting, for a rank with more to compute or a slower host. The n-th collective of a kind in a group is the same on all its ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.evidence.profiler.classes import class_of, is_collective
from meshcast.evidence.profiler.steps import StepSearch
from meshcast.evidence.profiler.trace import MeasuredKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Seconds that the collectives of one rank's step wait for other ranks.

    Attributes:
        collectives: How many were found on other ranks, too.
        seconds: How long they take.
        waiting_s: How much of it they wait.
        mostly_for: The place of the rank that comes last most of that time; None where nobody waits.
    """

    collectives: int
    seconds: float
    waiting_s: float
    mostly_for: int | None


def waiting_of(shown: int, searches: Sequence[StepSearch]) -> Waiting | None:
    """How long the collectives of one rank wait for others; None where that cannot be told.

    Args:
        shown: The place of the rank.
        searches: Every rank's steps; the one that is compared is looked at on all of them.
    """
    number = searches[shown].chosen
    if len(searches) < 2 or len({len(search.steps) for search in searches}) > 1:
        return None
    sequences = [_collectives(search.steps[number].kernels) for search in searches]
    count, seconds, waiting = 0, 0.0, 0.0
    blamed: defaultdict[int, float] = defaultdict(float)
    for key, own in sequences[shown].items():
        others = {rank: found[key] for rank, found in enumerate(sequences) if len(found.get(key, ())) == len(own)}
        if len(others) < 2:
            continue
        for place, duration in enumerate(own):
            last = min(others, key=lambda rank, place=place: others[rank][place])  # type: ignore[misc]
            count, seconds = count + 1, seconds + duration
            waiting += duration - others[last][place]
            blamed[last] += duration - others[last][place]
    if not count:
        return None
    return Waiting(
        collectives=count,
        seconds=seconds,
        waiting_s=waiting,
        mostly_for=max(blamed, key=lambda rank: blamed[rank]) if waiting else None,
    )


def _collectives(kernels: Sequence[MeasuredKernel]) -> dict[tuple[str, str], list[float]]:
    """Durations in order, by group and kind."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for kernel in kernels:
        kind = class_of(kernel)
        if is_collective(kind):
            found[kernel.group, kind].append(kernel.duration)
    return found
