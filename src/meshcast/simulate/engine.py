"""One rank's step: kernels on a compute and a communication stream, in the order their data allows.

Equal ranks of an SPMD program behave alike, so one rank stands for all; a collective takes the time of its whole group.
Each stream runs one kernel at a time and picks, of the kernels whose operands are ready, the first in program order: what a
latency-hiding scheduler reaches without looking ahead. Loops and branches are barriers (XLA finishes a loop body's
collectives inside the body), so a body is simulated once and multiplied.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from meshcast.estimate.chain import EstimatedKernels
from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, LoweredProgram, Schedule, Step
from meshcast.simulate.timeline import COMMUNICATION, COMPUTE, Breakdown, Repeat, Span, Timeline

CommunicationTime = Callable[[Kernel], float]


def simulate(lowered: LoweredProgram, kernels: EstimatedKernels, communication: CommunicationTime) -> Timeline:
    """The timeline of one rank.

    Args:
        lowered: The kernels in program order.
        kernels: Times of compute kernels.
        communication: Seconds of a collective kernel.
    """
    return _Simulation(kernels, communication).block(lowered.schedule)


class _Simulation:
    def __init__(self, kernels: EstimatedKernels, communication: CommunicationTime) -> None:
        self._kernels = kernels
        self._communication = communication

    def block(self, schedule: Schedule) -> Timeline:
        steps = schedule.steps
        bodies = {i: self._body(step) for i, step in enumerate(steps) if not isinstance(step, Kernel)}
        successors, missing = _dependencies(steps)
        durations = [bodies[i].duration * _trips(s) if i in bodies else self._seconds(s) for i, s in enumerate(steps)]
        order = _list_schedule(steps, durations, successors, missing)
        spans: list[Span | Repeat] = []
        for index, start in order:
            step, end = steps[index], start + durations[index]
            if isinstance(step, Kernel):
                spans.append(Span(kernel=step, stream=stream_of(step), start=start, end=end))
            else:
                label = step.label if isinstance(step, LoopStep) else "branch"
                spans.append(Repeat(label=label, body=bodies[index], trips=_trips(step), start=start, end=end))
        return self._timeline(spans)

    def _body(self, step: Step) -> Timeline:
        if isinstance(step, LoopStep):
            return self.block(step.body)
        assert isinstance(step, BranchStep)
        return max((self.block(body) for body in step.bodies), key=lambda timeline: timeline.duration)

    def _seconds(self, step: Step) -> float:
        assert isinstance(step, Kernel)
        return self._communication(step) if step.collective is not None else self._kernels[step].time

    def _timeline(self, spans: list[Span | Repeat]) -> Timeline:
        duration = max((span.end for span in spans), default=0.0)
        breakdown = Breakdown()
        energy = busy = 0.0
        occupied: list[tuple[float, float]] = []  # by compute, loops and branches
        communicating: list[tuple[float, float]] = []
        for span in spans:
            if isinstance(span, Repeat):
                occupied.append((span.start, span.end))
                breakdown += span.body.breakdown * span.trips
                energy += span.body.energy * span.trips
                busy += span.body.communication_busy * span.trips
            elif span.stream == COMMUNICATION:
                communicating.append((span.start, span.end))
                busy += span.end - span.start
            else:
                occupied.append((span.start, span.end))
                breakdown += self._share(span.kernel)
                energy += self._kernels[span.kernel].energy
        exposed, idle = _gaps(occupied, communicating, duration)
        breakdown += Breakdown(exposed_communication=exposed, idle=idle)
        return Timeline(
            spans=tuple(spans), duration=duration, breakdown=breakdown, communication_busy=busy, energy=energy
        )

    def _share(self, kernel: Kernel) -> Breakdown:
        estimate = self._kernels[kernel]
        overhead = min(estimate.overhead, estimate.time)
        work = estimate.time - overhead
        if estimate.compute_time >= estimate.memory_time:
            return Breakdown(compute=work, overhead=overhead)
        return Breakdown(memory=work, overhead=overhead)


def stream_of(kernel: Kernel) -> str:
    """The stream a kernel runs on."""
    return COMMUNICATION if kernel.collective is not None else COMPUTE


def _trips(step: Step) -> int:
    return step.trips if isinstance(step, LoopStep) else 1


def _dependencies(steps: tuple[Step, ...]) -> tuple[list[list[int]], list[int]]:
    """Steps that wait for each step, and how many each waits for."""
    producer: dict[int, int] = {}
    successors: list[list[int]] = [[] for _ in steps]
    missing = [0] * len(steps)
    for index, step in enumerate(steps):
        for before in {producer[value] for value in step.reads if value in producer}:
            successors[before].append(index)
            missing[index] += 1
        for value in step.writes:
            producer[value] = index
    return successors, missing


def _list_schedule(
    steps: tuple[Step, ...], durations: list[float], successors: list[list[int]], missing: list[int]
) -> list[tuple[int, float]]:
    """(step, start) in order of start. Streams: 0 compute, 1 communication, and both for loops and branches."""
    ready_at = [0.0] * len(steps)
    # Per stream: steps whose operands are ready, by program order, and steps that will be, by time.
    runnable: tuple[list[int], list[int]] = ([], [])
    arriving: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
    free = [0.0, 0.0]
    lane = [1 if isinstance(s, Kernel) and s.collective is not None else 0 for s in steps]
    barrier = [not isinstance(s, Kernel) for s in steps]

    for index, count in enumerate(missing):
        if count == 0:
            heapq.heappush(arriving[lane[index]], (0.0, index))
    order: list[tuple[int, float]] = []
    while len(order) < len(steps):
        best: tuple[float, int] | None = None
        for stream in (0, 1):
            while arriving[stream] and arriving[stream][0][0] <= free[stream]:
                heapq.heappush(runnable[stream], heapq.heappop(arriving[stream])[1])
            if runnable[stream]:
                start = free[stream]
                if barrier[runnable[stream][0]]:
                    start = max(free)
            elif arriving[stream]:
                start = arriving[stream][0][0]
                if barrier[arriving[stream][0][1]]:
                    start = max(start, *free)
            else:
                continue
            if best is None or start < best[0]:
                best = (start, stream)
        assert best is not None, "a schedule's dependencies form a cycle"
        start, stream = best
        index = heapq.heappop(runnable[stream]) if runnable[stream] else heapq.heappop(arriving[stream])[1]
        order.append((index, start))
        end = start + durations[index]
        free[stream] = end
        if barrier[index]:
            free = [end, end]
        for successor in successors[index]:
            missing[successor] -= 1
            ready_at[successor] = max(ready_at[successor], end)
            if missing[successor] == 0:
                heapq.heappush(arriving[lane[successor]], (ready_at[successor], successor))
    return order


def _gaps(
    occupied: list[tuple[float, float]], communicating: list[tuple[float, float]], duration: float
) -> tuple[float, float]:
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
