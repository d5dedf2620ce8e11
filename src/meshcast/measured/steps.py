"""Steps of a trace: the repetitions in what a device runs.

Where the host said which step it was in (PyTorch's `ProfilerStep`), that counts. Otherwise a kernel that runs once a step cuts
the trace: for each number of times that some kernel is seen, the trace is cut before the first such kernel, and the cuts are
steps if they launch the same kernels. Where every kernel runs more often than that, the trace is shifted against itself by the
distances between the rarest kernel's launches; where it falls on itself, that is a step's length. Layers repeat too, so that
several cuts can fit; those whose steps have about as many launches as were predicted are taken, and of them the shortest.

A step lasts from its first kernel's start to that of the next step, so that the wait between them is its own; the last one
ends with its last kernel, and counts only where there are too few others.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshcast.errors import InputError, UsageError
from meshcast.measured.trace import MeasuredKernel, MeasuredTrace

ALIKE = 0.9  # of a step's launches that two steps have in common
WHOLE = 0.75  # of the cuts that must be alike, and of the trace's time that they must hold
FAR = 16  # times more or fewer launches than predicted: no step
NEAR = 2.5  # likewise: as good as any
MOST_SHIFTS = 200
FEWEST_FOR_WARM_UP = 3  # whole steps, of which the first is dropped


Token = tuple[str, str, str]  # what tells a kernel from others: its name, instruction and launch grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its kernels, and how long until the next one began."""

    kernels: tuple[MeasuredKernel, ...] = field(repr=False)
    seconds: float
    whole: bool = True  # whether a next step follows

    @property
    def launches(self) -> int:
        """How many kernels it ran."""
        return sum(kernel.count for kernel in self.kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSearch:
    """The steps of a trace, and the one that stands for them: the median of those that count."""

    steps: tuple[Step, ...] = field(repr=False)
    counted: tuple[int, ...]
    chosen: int
    method: str

    @property
    def step(self) -> Step:
        """The median step."""
        return self.steps[self.chosen]


def find_steps(trace: MeasuredTrace, *, expected: int, count: int | None = None) -> StepSearch:
    """The steps of a trace.

    Args:
        trace: What a device ran.
        expected: Launches in a step as they were predicted: tells steps from layers.
        count: How many steps there are, where it is known.

    Raises:
        UsageError: A summary has no order in which steps could be found, and `count` is not given.
        InputError: Nothing repeats `count` times, or nothing takes any time.
    """
    if not any(kernel.duration > 0 for kernel in trace.kernels):
        raise InputError(f"no kernel of {trace.device} takes any time", where=trace.source)
    if not trace.ordered:
        return _of_summary(trace, count)
    if count is None and any(kernel.step is not None for kernel in trace.kernels):
        numbers = sorted({kernel.step for kernel in trace.kernels if kernel.step is not None})
        cuts = [[kernel for kernel in trace.kernels if kernel.step == number] for number in numbers]
        return _search([cut for cut in cuts if cut], "the host's step numbers")
    tokens = [_token(kernel) for kernel in trace.kernels]
    seen = Counter(tokens)
    if count is not None:
        return _told(trace, tokens, seen, count)
    options = [[list(trace.kernels)]]
    for times in sorted({times for times in seen.values() if times > 1}):
        if 1 / FAR <= len(tokens) / times / max(expected, 1) <= FAR:
            options.append(_alike(_cut(trace.kernels, tokens, seen, times), trace.kernels))
    options += [_alike(cuts, trace.kernels) for cuts in _shifted(trace.kernels, tokens, seen)]
    options = [cuts for cuts in options if cuts]
    best = min(options, key=lambda cuts: (_off(cuts, expected), -len(cuts)))
    return _search(best, "repeated kernels" if len(best) > 1 else "the whole trace: nothing repeats as steps do")


def _off(cuts: list[list[MeasuredKernel]], expected: int) -> float:
    """How far a step's launches are from those expected, beyond what predictions may be off by."""
    launches = statistics.median(map(len, cuts))
    return max(0.0, abs(math.log(launches / max(expected, 1))) - math.log(NEAR))


def _token(kernel: MeasuredKernel) -> Token:
    return kernel.name, kernel.op, kernel.shape


def _told(trace: MeasuredTrace, tokens: Sequence[Token], seen: Counter[Token], count: int) -> StepSearch:
    if count == 1:
        return _search([list(trace.kernels)], "--steps")
    if count in seen.values():
        return _search(_cut(trace.kernels, tokens, seen, count), "--steps")
    cuts = next((cuts for cuts in _shifted(trace.kernels, tokens, seen) if len(cuts) == count), None)
    if cuts is None:
        raise InputError(
            f"nothing in this trace repeats {count} times",
            where=trace.source,
            fix="leave --steps out, or give how many whole steps the trace holds",
        )
    return _search(cuts, "--steps")


def _shifted(
    kernels: Sequence[MeasuredKernel], tokens: Sequence[Token], seen: Counter[Token]
) -> Iterator[list[list[MeasuredKernel]]]:
    """The trace cut into equal parts by every shift that it falls on itself with, the shortest first."""
    numbers = {token: number for number, token in enumerate(seen)}
    sequence = np.array([numbers[token] for token in tokens])
    rarest = (
        min((times, numbers[token]) for token, times in seen.items() if times > 1)[1] if len(seen) < len(tokens) else 0
    )
    places = np.flatnonzero(sequence == rarest)
    # From its first launch on, and from one in the middle: the first may be of the warm-up.
    middle = len(places) // 2
    shifts = {int(place - places[0]) for place in places[1 : 1 + MOST_SHIFTS]}
    shifts |= {int(place - places[middle]) for place in places[middle + 1 : middle + 1 + MOST_SHIFTS]}
    for shift in sorted(shifts):
        same = sequence[:-shift] == sequence[shift:]
        begins = np.flatnonzero(same)
        if not len(begins) or same[begins[0] :].mean() < ALIKE:
            continue
        parts = [list(kernels[at : at + shift]) for at in range(int(begins[0]), len(kernels), shift)]
        yield parts if len(parts[-1]) >= ALIKE * shift else parts[:-1]


def _cut(
    kernels: Sequence[MeasuredKernel], tokens: Sequence[Token], seen: Counter[Token], times: int
) -> list[list[MeasuredKernel]]:
    """The trace cut before each run of the first kernel that runs so many times."""
    anchor = next(token for token in tokens if seen[token] == times)
    places = [place for place, token in enumerate(tokens) if token == anchor]
    return [list(kernels[start:end]) for start, end in zip(places, [*places[1:], len(kernels)], strict=True)]


def _alike(cuts: list[list[MeasuredKernel]], kernels: Sequence[MeasuredKernel]) -> list[list[MeasuredKernel]]:
    """The cuts that launch the same as the median one does; none where they are too few to be the trace's steps."""
    model = Counter(map(_token, sorted(cuts, key=len)[len(cuts) // 2]))
    kept = []
    for cut in cuts:
        own = Counter(map(_token, cut))
        if (own & model).total() >= ALIKE * max(own.total(), model.total()):
            kept.append(cut)
    held = sum(kernel.duration for cut in kept for kernel in cut)
    enough = len(kept) >= max(2, WHOLE * len(cuts)) and held >= WHOLE * sum(kernel.duration for kernel in kernels)
    return kept if enough else []


def _search(cuts: list[list[MeasuredKernel]], method: str) -> StepSearch:
    """Steps timed, the first of enough dropped, the median taken; of two in the middle the shorter."""
    steps = []
    for cut, after in zip(cuts, [*cuts[1:], None], strict=True):
        end = max(kernel.end for kernel in cut) if after is None else after[0].start
        steps.append(Step(kernels=tuple(cut), seconds=end - cut[0].start, whole=after is not None))
    counted = [number for number, step in enumerate(steps) if step.whole] or [0]
    if len(counted) >= FEWEST_FOR_WARM_UP:
        counted = counted[1:]
    ordered = sorted(counted, key=lambda number: steps[number].seconds)
    return StepSearch(
        steps=tuple(steps), counted=tuple(counted), chosen=ordered[(len(ordered) - 1) // 2], method=method
    )


def _of_summary(trace: MeasuredTrace, count: int | None) -> StepSearch:
    """A step's share of a summary; kernels that do not run in every step keep their share of the time."""
    if count is None:
        raise UsageError(
            "a summary of kernels does not say how many steps it sums",
            where=trace.source,
            fix="give --steps N, or the table of nsys stats --report cuda_gpu_trace",
        )
    kernels = tuple(
        MeasuredKernel(
            name=kernel.name,
            start=0.0,
            duration=kernel.duration / count,
            count=max(1, round(kernel.count / count)),
        )
        for kernel in trace.kernels
    )
    step = Step(kernels=kernels, seconds=sum(kernel.duration for kernel in kernels), whole=False)
    return StepSearch(steps=(step,), counted=(0,), chosen=0, method="--steps")
