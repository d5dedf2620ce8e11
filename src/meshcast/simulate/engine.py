"""One rank's step: kernels on a compute, a communication and a copy stream, in a planned order that their data allows.

Equal ranks of an SPMD program behave alike, so one rank stands for all; a collective takes the time of its whole group.
Each stream runs one kernel at a time, in the order that `issue_order` fixed:
`start = max(end of the stream's previous kernel, ends of the kernels it waits for)`. Loops and branches take all
streams (XLA finishes a loop body's collectives inside the body), so a body is simulated once and multiplied. Copies that
a compiler starts beside compute take what compute leaves of the memory's time (`simulate.copies`).

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
from meshcast.simulate.copies import Copies
from meshcast.simulate.issue_order import BlockPlan, plan
from meshcast.simulate.timeline import COMMUNICATION, COPY, Breakdown, Repeat, Span, Timeline, stream_of

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
    """Seconds of a step or block: with the gap after its last kernel, and without; and how long memory is free in it."""

    all: float
    last: float
    free: float = 0.0

    def times(self, trips: int) -> _Length:
        return _Length(trips * self.all, (trips - 1) * self.all + self.last, trips * self.free) if trips else NOTHING


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
        return _place(block, lengths).length

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
        placed = _place(block, lengths)
        length, order = placed.length, placed.order
        spans: list[Span | Repeat] = []
        for index in order:
            step, start, end = block.steps[index], placed.starts[index], placed.ends[index]
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
        estimate = self._kernels[kernel]
        seconds = estimate.time
        if stream_of(kernel) == COPY:
            return _Length(seconds, seconds)
        everything = seconds + self._gap_after(seconds)
        return _Length(everything, seconds, max(0.0, everything - estimate.memory_time))

    def _gap_after(self, seconds: float) -> float:
        """A kernel that takes no time is none: an empty tensor's, or one that a question leaves out."""
        return self._kernels.gap if seconds else 0.0

    def _summed(self, spans: tuple[Span | Repeat, ...], duration: float) -> Timeline:
        nested = Breakdown()
        compute = memory = overhead = energy = busy = 0.0
        occupied: list[Interval] = []  # by compute, loops and branches
        communicating: list[Interval] = []
        copying: list[Interval] = []
        for span in spans:
            if isinstance(span, Repeat):
                occupied.append((span.start, span.end))
                nested += span.body.breakdown * span.trips
                energy += span.body.energy * span.trips
                busy += span.body.communication_busy * span.trips
            elif span.stream == COMMUNICATION:
                communicating.append((span.start, span.end))
                busy += span.end - span.start
            elif span.stream == COPY:
                copying.append((span.start, span.end))
                energy += self._kernels[span.kernel].energy
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
        waiting = _covered([(0.0, duration)], occupied)[1]
        copied, waiting = _covered(waiting, copying)
        exposed, waiting = _covered(waiting, communicating)
        rest = sum(end - start for start, end in waiting)
        own = Breakdown(
            compute=compute, memory=memory + copied, exposed_communication=exposed, overhead=overhead, idle=rest
        )
        return Timeline(spans=spans, duration=duration, breakdown=nested + own, communication_busy=busy, energy=energy)


EMPTY = Timeline(spans=(), duration=0.0, breakdown=Breakdown(), communication_busy=0.0, energy=0.0)


def _trips(step: Step) -> int:
    return step.trips if isinstance(step, LoopStep) else 1


def _costliest(bodies: Iterable[_Length]) -> _Length:
    """Of several branches either length is that of the longest; none takes no time."""
    lengths = list(bodies) or [NOTHING]
    return _Length(
        max(length.all for length in lengths),
        max(length.last for length in lengths),
        min(length.free for length in lengths),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A block's steps in time."""

    length: _Length
    order: tuple[int, ...]
    starts: Sequence[float]
    ends: Sequence[float]


def _place(block: BlockPlan, lengths: Sequence[_Length]) -> _Placed:
    """The fastest of a block's orders."""
    if not block.concurrent:
        starts: list[float] = []
        now = last = free = 0.0
        for length in lengths:
            starts.append(now)
            if length.all:
                last = now + length.last
            now += length.all
            free += length.free
        ends = [start + length.all for start, length in zip(starts, lengths, strict=True)]
        return _Placed(_Length(now, last, free), block.orders[0], starts, ends)
    runs = [_in_order(block, order, lengths) for order in block.orders]
    fastest = min(runs, key=lambda run: run.length.all)
    return replace(fastest, length=replace(fastest.length, last=min(run.length.last for run in runs)))


def _in_order(block: BlockPlan, order: tuple[int, ...], lengths: Sequence[_Length]) -> _Placed:
    starts, ends = [0.0] * len(order), [0.0] * len(order)
    compute = communication = last = 0.0
    copies = Copies(starts, ends)
    for index in order:
        step, seconds = block.steps[index], lengths[index].all
        if isinstance(step, Kernel) and stream_of(step) == COPY:
            copies.issue(index, seconds, at=compute, next_step="prefetch" in step.flags)
            continue
        # Of a collective too: the core itself waits for a copy (XLA's `copy-done`) before it starts the collective, so
        # all compute that stands behind it in the compiler's order waits as well.
        compute = copies.waited_for(block.before[index], compute)
        start = max((ends[earlier] for earlier in block.before[index]), default=0.0)
        if isinstance(step, Kernel) and step.collective is not None:
            start = max(start, communication)
            communication = ends[index] = start + seconds
        else:
            start = max(start, compute)
            if not isinstance(step, Kernel):
                start = max(start, communication)
                communication = start + seconds
            copies.run_beside(compute, start, free=start - compute)
            copies.run_beside(start, start + seconds, free=lengths[index].free)
            compute = ends[index] = start + seconds
        starts[index] = start
        if seconds:
            last = max(last, start + lengths[index].last)
    done = copies.finished(compute)
    if done > compute:
        compute, last = done, max(last, done)
    return _Placed(_Length(max(compute, communication), last, copies.unused), order, starts, ends)


def _covered(times: Sequence[Interval], by: Sequence[Interval]) -> tuple[float, list[Interval]]:
    """How much of some stretches of time others cover, and what they leave; both come in order of start."""
    total = 0.0
    left: list[Interval] = []
    cursor = 0
    for start, end in times:
        position = start
        while cursor < len(by) and by[cursor][1] <= position:
            cursor += 1
        probe = cursor
        while probe < len(by) and by[probe][0] < end:
            begin, until = max(position, by[probe][0]), min(end, by[probe][1])
            if until > begin:
                if begin > position:
                    left.append((position, begin))
                total += until - begin
                position = until
            probe += 1
        if end > position:
            left.append((position, end))
    return total, left
