"""The launches of a predicted step, loops unrolled, in the words that measured ones are put in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshcast.base import UnsupportedError
from meshcast.evidence.comparison.reality.exposure import COMPUTING, COPYING, SENDING
from meshcast.evidence.profiler.classes import (
    ATTENTION,
    COLLECTIVE,
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    INDEXED,
    MATMUL,
    OTHER,
    REDUCTION,
    SORT,
)
from meshcast.jobs import Run
from meshcast.lower import Kernel, KernelKind
from meshcast.simulate import COMPUTE, Repeat, Timeline
from meshcast.simulate import COPY as COPY_STREAM

MOST_LAUNCHES = 300_000
_CLASSES = {
    KernelKind.GEMM: MATMUL,
    KernelKind.CONVOLUTION: CONVOLUTION,
    KernelKind.ATTENTION: ATTENTION,
    KernelKind.LOOP_FUSION: ELEMENTWISE,
    KernelKind.REDUCTION: REDUCTION,
    KernelKind.TRANSPOSE: COPY,
    KernelKind.GATHER: INDEXED,
    KernelKind.SCATTER: INDEXED,
    KernelKind.SORT: SORT,
    KernelKind.SOLVER: OTHER,
    KernelKind.OTHER: OTHER,
    KernelKind.CUSTOM: OTHER,
}
# Ops that move what they read, as it is.
_MOVING = frozenset(
    {"copy", "slice", "dynamic_slice", "dynamic_update_slice", "concatenate", "transpose", "reverse", "pad"}
)
_AROUND = frozenset({"constant", "reshape", "iota", "bitcast_convert"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedLaunch:
    """One predicted launch, from `start` to `end` in the step.

    `seconds` is what it takes itself: a copy beside compute is under way for longer, as it waits for its turn. The gap behind a
    kernel is no part of it.
    """

    kernel: Kernel
    kind: str
    start: float
    end: float
    seconds: float
    tier: int = COMPUTING


def class_of_kernel(kernel: Kernel) -> str:
    """The class of a predicted kernel."""
    if kernel.collective is not None:
        return COLLECTIVE + str(kernel.collective.kind).replace("_", "-")
    names = {name.rpartition(".")[2] for name in kernel.ops}
    moves = bool(names & _MOVING) and names <= _MOVING | _AROUND
    if kernel.kind is KernelKind.LOOP_FUSION and (moves or kernel.flags & {"copy", "beside"} or not kernel.ops):
        return COPY
    return _CLASSES[kernel.kind]


def launches(run: Run) -> list[PredictedLaunch]:
    """Every launch of a run's step, by start.

    Raises:
        UnsupportedError: There are too many to put side by side with measured ones.
    """
    count = sum(times for _, times in run.timeline.walk())
    if count > MOST_LAUNCHES:
        raise UnsupportedError(
            f"the step has {count:,} launches; up to {MOST_LAUNCHES:,} can be compared with a trace",
            where=run.workload.name,
            fix="measure and predict fewer layers or microbatches",
        )
    return sorted(_unrolled(run, run.timeline, 0.0), key=lambda launch: launch.start)


def _unrolled(run: Run, timeline: Timeline, start: float) -> Iterator[PredictedLaunch]:
    for span in timeline.spans:
        if isinstance(span, Repeat):
            turn = (span.end - span.start) / span.trips if span.trips else 0.0
            for trip in range(span.trips):
                yield from _unrolled(run, span.body, start + span.start + trip * turn)
            continue
        tier = {COMPUTE: COMPUTING, COPY_STREAM: COPYING}.get(span.stream, SENDING)
        seconds = span.end - span.start
        if tier == COMPUTING and seconds:
            seconds = max(0.0, seconds - run.kernels.gap)
        if seconds:
            yield PredictedLaunch(
                kernel=span.kernel,
                kind=class_of_kernel(span.kernel),
                start=start + span.start,
                end=start + span.start + seconds,
                seconds=min(seconds, run.kernels[span.kernel].time) if tier == COPYING else seconds,
                tier=tier,
            )
