"""One rank's step: kernels on a compute and a communication stream, in a planned order that their data allows.

Equal ranks of an SPMD program behave alike, so one rank stands for all; a collective takes the time of its whole group.
Each stream runs one kernel at a time, in the order that `issue_order` fixed:
`start = max(end of the stream's previous kernel, ends of the kernels it reads from)`. Loops and branches take both
streams (XLA finishes a loop body's collectives inside the body), so a body is simulated once and multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshcast.estimate.chain import EstimatedKernels
from meshcast.lower.kernel import Kernel, LoopStep, LoweredProgram, Step
from meshcast.simulate.issue_order import BlockPlan, plan
from meshcast.simulate.timeline import COMMUNICATION, COMPUTE, Breakdown, Repeat, Span, Timeline

CommunicationTime = Callable[[Kernel], float]
Interval = tuple[float, float]


def simulate(lowered: LoweredProgram, kernels: EstimatedKernels, communication: CommunicationTime) -> Timeline:
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
        self._plan = plan(lowered.schedule)
        self._computes = any(kernel.collective is None for kernel, _ in lowered.schedule.walk())

    def run(self, kernels: EstimatedKernels, communication: CommunicationTime) -> Timeline:
        """The timeline of one rank."""
        return _without_last_gap(_Run(kernels, communication).timeline(self._plan), kernels.gap)

    def duration(self, kernels: EstimatedKernels, communication: CommunicationTime) -> float:
        """The duration of that timeline, without its spans."""
        return _Run(kernels, communication).duration(self._plan) - (kernels.gap if self._computes else 0.0)


class _Run:
    def __init__(self, kernels: EstimatedKernels, communication: CommunicationTime) -> None:
        self._kernels = kernels
        self._communication = communication

    def duration(self, block: BlockPlan) -> float:
        durations = [
            _trips(step) * max(map(self.duration, bodies)) if bodies else self._seconds(step)
            for step, bodies in zip(block.steps, block.bodies, strict=True)
        ]
        return _place(block, durations)[0]

    def timeline(self, block: BlockPlan) -> Timeline:
        inner: dict[int, Timeline] = {}
        durations: list[float] = []
        for index, (step, bodies) in enumerate(zip(block.steps, block.bodies, strict=True)):
            if isinstance(step, Kernel):
                durations.append(self._seconds(step))
            else:
                inner[index] = max(map(self.timeline, bodies), key=lambda body: body.duration, default=EMPTY)
                durations.append(_trips(step) * inner[index].duration)
        duration, order, starts = _place(block, durations)
        spans: list[Span | Repeat] = []
        for index in order:
            step, start, end = block.steps[index], starts[index], starts[index] + durations[index]
            if isinstance(step, Kernel):
                spans.append(Span(kernel=step, stream=stream_of(step), start=start, end=end))
            else:
                label = step.label if isinstance(step, LoopStep) else "branch"
                spans.append(Repeat(label=label, body=inner[index], trips=_trips(step), start=start, end=end))
        return self._summed(tuple(spans), duration)

    def _seconds(self, kernel: Step) -> float:
        if not isinstance(kernel, Kernel):
            return 0.0  # a branch without bodies
        if kernel.collective is not None:
            return self._communication(kernel)
        return self._kernels[kernel].time + self._kernels.gap

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
                overhead += fixed + self._kernels.gap
                energy += estimate.energy
                if estimate.compute_time >= estimate.memory_time:
                    compute += estimate.time - fixed
                else:
                    memory += estimate.time - fixed
        exposed, idle = _gaps(occupied, communicating, duration)
        own = Breakdown(compute=compute, memory=memory, exposed_communication=exposed, overhead=overhead, idle=idle)
        return Timeline(spans=spans, duration=duration, breakdown=nested + own, communication_busy=busy, energy=energy)


def _without_last_gap(timeline: Timeline, gap: float) -> Timeline:
    """Every compute kernel was given the gap after it; after the last one there is none to wait for."""
    cut = min(gap, timeline.breakdown.overhead)
    breakdown = replace(timeline.breakdown, overhead=timeline.breakdown.overhead - cut)
    return replace(timeline, duration=timeline.duration - cut, breakdown=breakdown)


EMPTY = Timeline(spans=(), duration=0.0, breakdown=Breakdown(), communication_busy=0.0, energy=0.0)


def stream_of(kernel: Kernel) -> str:
    """The stream a kernel runs on."""
    return COMMUNICATION if kernel.collective is not None else COMPUTE


def _trips(step: Step) -> int:
    return step.trips if isinstance(step, LoopStep) else 1


def _place(block: BlockPlan, durations: Sequence[float]) -> tuple[float, tuple[int, ...], Sequence[float]]:
    """(duration, order, start of each step) of the fastest of a block's orders."""
    if not block.communicates:
        starts: list[float] = []
        now = 0.0
        for seconds in durations:
            starts.append(now)
            now += seconds
        return now, block.orders[0], starts
    runs = ((*_in_order(block, order, durations), order) for order in block.orders)
    duration, starts, order = min(runs, key=lambda run: run[0])
    return duration, order, starts


def _in_order(block: BlockPlan, order: Sequence[int], durations: Sequence[float]) -> tuple[float, list[float]]:
    starts, ends = [0.0] * len(order), [0.0] * len(order)
    compute = communication = 0.0
    for index in order:
        step = block.steps[index]
        start = max((ends[earlier] for earlier in block.before[index]), default=0.0)
        if not isinstance(step, Kernel):
            start = max(start, compute, communication)
            compute = communication = ends[index] = start + durations[index]
        elif step.collective is not None:
            start = max(start, communication)
            communication = ends[index] = start + durations[index]
        else:
            start = max(start, compute)
            compute = ends[index] = start + durations[index]
        starts[index] = start
    return max(compute, communication), starts


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
