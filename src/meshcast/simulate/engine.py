"""One rank's step: kernels on a compute and a communication stream, in a planned order that their data allows.

Equal ranks of an SPMD program behave alike, so one rank stands for all; a collective takes the time of its whole group.
Each stream runs one kernel at a time, in the order that `issue_order` fixed:
`start = max(end of the stream's previous kernel, ends of the kernels it waits for)`. Loops and branches take both
streams (XLA finishes a loop body's collectives inside the body), so a body is simulated once and multiplied.

Every compute kernel is followed by the gap until its stream can run the next one. Nothing waits for the last gap, so a
block has two lengths: `all`, after which another can begin, and `last`, when its last kernel ends. A loop takes
`(trips - 1) * all + last`, each of several orders may give the least `all` and the least `last`, and a step takes the
`last` of its outermost block. Both are maxima, minima and sums of durations, hence monotone in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from meshcast.estimate.chain import KernelEstimate
from meshcast.lower.kernel import Kernel, LoopStep, LoweredProgram, Step
from meshcast.simulate.issue_order import BlockPlan, plan
from meshcast.simulate.timeline import COMMUNICATION, COMPUTE, Breakdown, Repeat, Span, Timeline

CommunicationTime = Callable[[Kernel], float]
Interval = tuple[float, float]


class KernelTimes(Protocol):
    """Answers for compute kernels, and the seconds between consecutive kernels of a stream."""

    @property
    def gap(self) -> float:
        """Seconds between consecutive kernels."""

    def __getitem__(self, kernel: Kernel) -> KernelEstimate:
        """The answer for a kernel; one that takes no time is not launched."""


def simulate(lowered: LoweredProgram, kernels: KernelTimes, communication: CommunicationTime) -> Timeline:
    """The timeline of one rank.

    Args:
        lowered: The kernels in program order.
        kernels: Times of compute kernels.
        communication: Seconds of a collective kernel.
    """
    return Simulator(lowered).run(kernels, communication)


class Simulator:
    """A lowered program, planned once, to be run with any number of different times."""

    def __init__(self, lowered: LoweredProgram) -> None:
        self._plan = plan(lowered.schedule, reorder=lowered.lowering == "modelled")

    def run(self, kernels: KernelTimes, communication: CommunicationTime) -> Timeline:
        """The timeline of one rank."""
        timeline, length = _Run(kernels, communication).timeline(self._plan)
        parts = timeline.breakdown
        without_last_gap = replace(parts, overhead=max(0.0, parts.overhead - (length.all - length.last)))
        return replace(timeline, duration=length.last, breakdown=without_last_gap)

    def duration(self, kernels: KernelTimes, communication: CommunicationTime) -> float:
        """The duration of that timeline, without its spans."""
        return _Run(kernels, communication).length(self._plan).last


@dataclass(frozen=True, slots=True)
class _Length:
    """Seconds of a step or block: with the gap after its last kernel, and without."""

    all: float
    last: float

    def times(self, trips: int) -> _Length:
        return _Length(trips * self.all, (trips - 1) * self.all + self.last) if trips else NOTHING


NOTHING = _Length(0.0, 0.0)


class _Run:
    def __init__(self, kernels: KernelTimes, communication: CommunicationTime) -> None:
        self._kernels = kernels
        self._communication = communication

    def length(self, block: BlockPlan) -> _Length:
        lengths = [
            self._kernel(step) if isinstance(step, Kernel) else _costliest(map(self.length, bodies)).times(_trips(step))
            for step, bodies in zip(block.steps, block.bodies, strict=True)
        ]
        return _place(block, lengths)[0]

    def timeline(self, block: BlockPlan) -> tuple[Timeline, _Length]:
        inner: dict[int, Timeline] = {}
        lengths: list[_Length] = []
        for index, (step, bodies) in enumerate(zip(block.steps, block.bodies, strict=True)):
            if isinstance(step, Kernel):
                lengths.append(self._kernel(step))
            else:
                runs = [self.timeline(body) for body in bodies]
                inner[index] = max((body for body, _ in runs), key=lambda body: body.duration, default=EMPTY)
                lengths.append(_costliest(length for _, length in runs).times(_trips(step)))
        length, order, starts = _place(block, lengths)
        spans: list[Span | Repeat] = []
        for index in order:
            step, start, end = block.steps[index], starts[index], starts[index] + lengths[index].all
            if isinstance(step, Kernel):
                spans.append(Span(kernel=step, stream=stream_of(step), start=start, end=end))
            else:
                label = step.label if isinstance(step, LoopStep) else "branch"
                spans.append(Repeat(label=label, body=inner[index], trips=_trips(step), start=start, end=end))
        return self._summed(tuple(spans), length.all), length

    def _kernel(self, kernel: Kernel) -> _Length:
        if kernel.collective is not None:
            seconds = self._communication(kernel)
            return _Length(seconds, seconds)
        seconds = self._kernels[kernel].time
        return _Length(seconds + self._gap_after(seconds), seconds)

    def _gap_after(self, seconds: float) -> float:
        """A kernel that takes no time is none: an empty tensor's, or one that a question leaves out."""
        return self._kernels.gap if seconds else 0.0

    def _summed(self, spans: tuple[Span | Repeat, ...], duration: float) -> Timeline:
        nested = Breakdown()
        compute = memory = overhead = energy = busy = 0.0
        occupied: list[Interval] = []  # by compute, loops and branches
        communicating: list[Interval] = []
        for span in spans:
            if isinstance(span, Repeat):
                occupied.append((span.start, span.end))
                nested += span.body.breakdown * span.trips
                energy += span.body.energy * span.trips
                busy += span.body.communication_busy * span.trips
            elif span.stream == COMMUNICATION:
                communicating.append((span.start, span.end))
                busy += span.end - span.start
            else:
                occupied.append((span.start, span.end))
                estimate = self._kernels[span.kernel]
                fixed = min(estimate.overhead, estimate.time)
                overhead += fixed + self._gap_after(estimate.time)
                energy += estimate.energy
                if estimate.compute_time >= estimate.memory_time:
                    compute += estimate.time - fixed
                else:
                    memory += estimate.time - fixed
        exposed, idle = _gaps(occupied, communicating, duration)
        own = Breakdown(compute=compute, memory=memory, exposed_communication=exposed, overhead=overhead, idle=idle)
        return Timeline(spans=spans, duration=duration, breakdown=nested + own, communication_busy=busy, energy=energy)


EMPTY = Timeline(spans=(), duration=0.0, breakdown=Breakdown(), communication_busy=0.0, energy=0.0)


def stream_of(kernel: Kernel) -> str:
    """The stream a kernel runs on."""
    return COMMUNICATION if kernel.collective is not None else COMPUTE


def _trips(step: Step) -> int:
    return step.trips if isinstance(step, LoopStep) else 1


def _costliest(bodies: Iterable[_Length]) -> _Length:
    """Of several branches either length is that of the longest; none takes no time."""
    lengths = list(bodies) or [NOTHING]
    return _Length(max(length.all for length in lengths), max(length.last for length in lengths))


def _place(block: BlockPlan, lengths: Sequence[_Length]) -> tuple[_Length, tuple[int, ...], Sequence[float]]:
    """(length, order, start of each step) of the fastest of a block's orders."""
    if not block.communicates:
        starts: list[float] = []
        now = last = 0.0
        for length in lengths:
            starts.append(now)
            if length.all:
                last = now + length.last
            now += length.all
        return _Length(now, last), block.orders[0], starts
    runs = [(*_in_order(block, order, lengths), order) for order in block.orders]
    fastest, starts, order = min(runs, key=lambda run: run[0].all)
    return _Length(fastest.all, min(length.last for length, _, _ in runs)), order, starts


def _in_order(block: BlockPlan, order: Sequence[int], lengths: Sequence[_Length]) -> tuple[_Length, list[float]]:
    starts, ends = [0.0] * len(order), [0.0] * len(order)
    compute = communication = last = 0.0
    for index in order:
        step, seconds = block.steps[index], lengths[index].all
        start = max((ends[earlier] for earlier in block.before[index]), default=0.0)
        if not isinstance(step, Kernel):
            start = max(start, compute, communication)
            compute = communication = ends[index] = start + seconds
        elif step.collective is not None:
            start = max(start, communication)
            communication = ends[index] = start + seconds
        else:
            start = max(start, compute)
            compute = ends[index] = start + seconds
        starts[index] = start
        if seconds:
            last = max(last, start + lengths[index].last)
    return _Length(max(compute, communication), last), starts


def _gaps(occupied: Sequence[Interval], communicating: Sequence[Interval], duration: float) -> tuple[float, float]:
    """(exposed, idle): time outside `occupied` that communication covers, and that nothing covers.

    Intervals of one stream never overlap and come in order of start.
    """
    exposed = uncovered = position = 0.0
    cursor = 0
    for start, end in [*occupied, (duration, duration)]:
        if start > position:
            uncovered += start - position
            while cursor < len(communicating) and communicating[cursor][1] <= position:
                cursor += 1
            probe = cursor
            while probe < len(communicating) and communicating[probe][0] < start:
                exposed += min(start, communicating[probe][1]) - max(position, communicating[probe][0])
                probe += 1
        position = max(position, end)
    return exposed, max(0.0, uncovered - exposed)
