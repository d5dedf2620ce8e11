"""Steps of a trace: the repetitions in what a device runs.

Where the host said which step it was in (PyTorch's `ProfilerStep`), that counts. Otherwise the trace is cut into the most parts
that are uniform (`repetition.py`), and as many of them are a step as the predicted one is found to consist of. Where
no cut is uniform, steps differ among themselves; of all cuts whose parts are mostly alike, those with about as many
launches as were predicted are taken, and of them the shortest.

A step lasts from its first kernel's start to that of the next step, so that the wait between them is its own; the last one
ends with its last kernel, and counts only where there are too few others.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from meshcast.base import InputError, UsageError
from meshcast.evidence.profiler.repetition import (
    ALIKE,
    UNIFORM,
    Cut,
    cuts_by_count,
    cuts_by_shift,
    likeness,
    merged,
    middle_part,
    uniform_cuts,
)
from meshcast.evidence.profiler.trace import MeasuredKernel, MeasuredTrace

# Of the cuts that must be alike, and of the trace's time that they must hold: of four steps, as many as profiles of PyTorch's and
# ours usually have, one may be another, as the first with its warm-up is.
WHOLE = 0.75
# Times more or fewer launches than predicted: as good as any. The profiles that come with the project have from 0.55 to 1.8 times
# as many; a backend that fuses less or more than modelled has some room beyond.
NEAR = 2.5
# Likewise: no step. A layer of a model with more than a dozen of them launches that much less, steps that are taken for one that
# much more; no other fusion of the same program does.
FAR = 16
FEWEST_FOR_WARM_UP = 3  # whole steps, of which the first is dropped

MOST_LAUNCHES = 1_000_000  # of a step: each is matched with a kernel of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One step: its kernels, and how long until the next one began."""

    kernels: tuple[MeasuredKernel, ...] = field(repr=False)
    seconds: float
    whole: bool = True  # whether a next step follows

    @property
    def launches(self) -> int:
        """The number of kernels that the step launched."""
        return sum(kernel.count for kernel in self.kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSearch:
    """The steps of a trace, and the one that stands for them: the median of those that count."""

    steps: tuple[MeasuredStep, ...] = field(repr=False)
    counted: tuple[int, ...]
    chosen: int
    method: str

    @property
    def step(self) -> MeasuredStep:
        """The median step."""
        return self.steps[self.chosen]


def find_steps(trace: MeasuredTrace, *, expected: int, count: int | None = None, repeats: int = 1) -> StepSearch:
    """The steps of a trace.

    Args:
        trace: What a device ran.
        expected: Launches in a step as they were predicted: tells steps from layers.
        count: How many steps there are, where it is known.
        repeats: Of how many parts that are alike the predicted step consists (`repetition.repetitions`).

    Raises:
        UsageError: A summary has no order in which steps could be found, and `count` is not given.
        InputError: Nothing repeats `count` times, or nothing takes any time.
    """
    if not any(kernel.duration > 0 for kernel in trace.kernels):
        raise InputError(
            f"none of {len(trace.kernels)} kernels of {trace.device} takes any time",
            where=trace.source,
            fix="record again, and look whether the profiler warns that it lost the device's timestamps",
        )
    if not trace.ordered:
        return _of_summary(trace, count)
    if count is None and any(kernel.step is not None for kernel in trace.kernels):
        numbers = sorted({kernel.step for kernel in trace.kernels if kernel.step is not None})
        cuts = [[kernel for kernel in trace.kernels if kernel.step == number] for number in numbers]
        cuts = [cut for cut in cuts if cut]
        nexts = [*(cut[0].start for cut in cuts[1:]), None]
        return _search(list(zip(cuts, nexts, strict=True)), "the host's step numbers")
    tokens = [_token(kernel) for kernel in trace.kernels]
    if count is not None:
        return _told(trace, tokens, count)
    best = _uniform(trace.kernels, tokens, expected, repeats) or _mostly_alike(trace.kernels, tokens, expected)
    method = "repeated kernels" if len(best) > 1 else "the whole trace: nothing repeats as steps do"
    return _search(_followed(trace.kernels, best), method)


def _token(kernel: MeasuredKernel) -> Hashable:
    """What tells a kernel from others: its name, instruction and launch grid."""
    return kernel.name, kernel.op, kernel.shape


def _off(cuts: Sequence[Cut], expected: int) -> float:
    """How far a step's launches are from those expected, as the logarithm of their ratio."""
    return abs(math.log(_launches(cuts) / max(expected, 1)))


def _launches(cuts: Sequence[Cut]) -> float:
    return statistics.median(end - start for start, end in cuts)


def _uniform(kernels: Sequence[MeasuredKernel], tokens: Sequence[Hashable], expected: int, repeats: int) -> list[Cut]:
    """The finest uniform cut, or so many of its parts together, if that is nearer to what was predicted; none if neither is.

    Parts are put together by a kernel that runs once a step, where there is one, since the trace may begin inside a step.
    """
    found = uniform_cuts(tokens)
    if not found:
        return []
    parts = found[0]
    length = repeats * _launches(parts)
    anchored = [cuts for cuts in found if UNIFORM <= _launches(cuts) / length <= 1 / UNIFORM]
    joined = anchored[0] if anchored else merged(parts, repeats)
    best = min((parts, joined), key=lambda cuts: _off(cuts, expected) if cuts else math.inf)
    if len(best) == 1:
        best = [(0, len(tokens))]  # as many parts as a step has
    return best if _off(best, expected) <= math.log(FAR) and _holds(kernels, best) else []


def _holds(kernels: Sequence[MeasuredKernel], cuts: Sequence[Cut]) -> bool:
    """Whether cuts hold most of a trace's time."""
    held = sum(kernel.duration for start, end in cuts for kernel in kernels[start:end])
    return held >= WHOLE * sum(kernel.duration for kernel in kernels)


def _mostly_alike(kernels: Sequence[MeasuredKernel], tokens: Sequence[Hashable], expected: int) -> list[Cut]:
    """The cut, among those most of whose parts are alike, with about as many launches as expected; else the whole trace."""
    seen = Counter(tokens)
    options = [[(0, len(tokens))]]
    for times in sorted({times for times in seen.values() if times > 1}):
        if 1 / FAR <= len(tokens) / times / max(expected, 1) <= FAR:
            options.append(_alike(kernels, tokens, cuts_by_count(tokens, seen, times)))
    options += [_alike(kernels, tokens, cuts) for cuts in cuts_by_shift(tokens, seen)]
    found = [cuts for cuts in options if cuts]
    return min(found, key=lambda cuts: (max(0.0, _off(cuts, expected) - math.log(NEAR)), -len(cuts)))


def _alike(kernels: Sequence[MeasuredKernel], tokens: Sequence[Hashable], cuts: list[Cut]) -> list[Cut]:
    """The cuts that launch the same as the median one does; none where they are too few to be the trace's steps."""
    model = middle_part(tokens, cuts)
    kept = [cut for cut in cuts if likeness(Counter(tokens[slice(*cut)]), model) >= ALIKE]
    return kept if len(kept) >= max(2, WHOLE * len(cuts)) and _holds(kernels, kept) else []


def _told(trace: MeasuredTrace, tokens: Sequence[Hashable], count: int) -> StepSearch:
    if count == 1:
        return _search([(list(trace.kernels), None)], "--steps")
    seen = Counter(tokens)
    options = [cuts_by_count(tokens, seen, count)] if count in seen.values() else cuts_by_shift(tokens, seen)
    cuts = next((cuts for cuts in options if len(cuts) == count), None)
    if cuts is None:
        raise InputError(
            f"nothing in this trace repeats {count} times",
            where=trace.source,
            fix="leave --steps out, or give how many whole steps the trace holds",
        )
    return _search(_followed(trace.kernels, cuts), "--steps")


def _followed(
    kernels: Sequence[MeasuredKernel], cuts: Sequence[Cut]
) -> list[tuple[list[MeasuredKernel], float | None]]:
    """The kernels of each cut, and when what follows it began: a step that does not count as one may lie between two."""
    return [(list(kernels[start:end]), kernels[end].start if end < len(kernels) else None) for start, end in cuts]


def _search(cuts: Sequence[tuple[list[MeasuredKernel], float | None]], method: str) -> StepSearch:
    """Steps timed, the first of enough dropped, the median taken; of two in the middle the shorter."""
    steps = []
    for cut, after in cuts:
        end = max(kernel.end for kernel in cut) if after is None else after
        steps.append(MeasuredStep(kernels=tuple(cut), seconds=end - cut[0].start, whole=after is not None))
    counted = [number for number, step in enumerate(steps) if step.whole] or [0]
    if len(counted) >= FEWEST_FOR_WARM_UP:
        counted = counted[1:]
    ordered = sorted(counted, key=lambda number: steps[number].seconds)
    return StepSearch(
        steps=tuple(steps), counted=tuple(counted), chosen=ordered[(len(ordered) - 1) // 2], method=method
    )


def _of_summary(trace: MeasuredTrace, count: int | None) -> StepSearch:
    """A step's share of a summary, with equal launches of each kernel; what does not run in every step keeps its share."""
    if count is None:
        raise UsageError(
            "a summary of kernels does not say how many steps it sums",
            where=trace.source,
            fix="give --steps N, or the table of nsys stats --report cuda_gpu_trace",
        )
    launched = sum(kernel.count for kernel in trace.kernels) / count
    if launched > MOST_LAUNCHES:
        raise InputError(
            f"a summary of {launched:.3g} launches a step, more than {MOST_LAUNCHES}",
            where=trace.source,
            fix="check --steps",
        )
    kernels = tuple(
        MeasuredKernel(name=kernel.name, start=0.0, duration=kernel.duration / count / launches)
        for kernel in trace.kernels
        for launches in [max(1, round(kernel.count / count))]
        for _ in range(launches)
    )
    step = MeasuredStep(kernels=kernels, seconds=sum(kernel.duration for kernel in kernels), whole=False)
    return StepSearch(steps=(step,), counted=(0,), chosen=0, method="--steps")
