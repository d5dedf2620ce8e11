"""What compute and collectives of a rank take from each other, in a trace whose times are worked out again.

A replay takes a duration for every step. Here they are found so that they agree with the replay that they make: where a step
of `t` seconds alone runs from `a` to `b` beside others that leave it the speed `v` (`simulate.contention`),

    seconds' = t (b - a) / integral of v from a to b

and so on, until the step of the whole job hardly changes. Messages between two ranks, and what a pipeline sums up beside its
programs, take nothing, as in the prediction of a pipeline.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meshcast.chakra import FIRST_JOB_STREAM
from meshcast.estimate import EstimatedKernels
from meshcast.jobs.traced.kernels import kernel_of
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.replay import Replayed
from meshcast.jobs.traced.steps import TraceStep
from meshcast.lower import Kernel, KernelKind
from meshcast.simulate import SpeedShares
from meshcast.workload import Collective

MOST_ROUNDS = 12
STEADY = 1e-5  # change of the step, as a share of it, below which times are taken to agree
Seconds = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The compute steps and collectives that run at the same time on each rank of a job.

    Attributes:
        job: The job.
        rates: Speeds of what is under way at once.
        collective: The collective of a class's step, one launch of it.
    """

    job: TracedRanks
    rates: SpeedShares
    collective: Callable[[int, TraceStep], Collective]
    # By class and step: a step has a number of its own, so that no two are equal, and two dozen fields to be hashed.
    _known: dict[tuple[object, ...], tuple[float, list[float]]] = field(default_factory=dict, repr=False)
    _kernels: dict[tuple[int, int], Kernel] = field(default_factory=dict, repr=False)

    def settled(
        self, alone: Seconds, estimated: Sequence[EstimatedKernels], replayed: Callable[[Seconds], Replayed]
    ) -> tuple[Seconds, Replayed]:
        """Seconds of all steps beside each other, and when they run.

        Args:
            alone: Seconds of every step that has its device to itself, by class.
            estimated: Kernels at the clock of each class.
            replayed: Runs the job with some seconds.
        """
        seconds, run = alone, replayed(alone)
        for _ in range(MOST_ROUNDS):
            before = run.duration
            seconds = [self._slowed(n, alone[n], estimated[n], run) for n in range(len(self.job.classes))]
            run = replayed(seconds)
            if abs(run.duration - before) <= STEADY * before:
                break
        return seconds, run

    def _slowed(self, number: int, alone: Sequence[float], estimated: EstimatedKernels, run: Replayed) -> list[float]:
        """Seconds of one class's steps, beside what they ran beside."""
        steps, starts, ends = self.job.steps[number], run.starts[number], run.ends[number]
        done = [0.0] * len(steps)  # integral of the speed
        running = [i for i, s in enumerate(steps) if ends[i] > starts[i] and _takes_part(s)]
        running.sort(key=lambda index: starts[index])
        under_way: list[tuple[float, int]] = []
        now, cursor = 0.0, 0
        while cursor < len(running) or under_way:
            begins = starts[running[cursor]] if cursor < len(running) else float("inf")
            until = min(begins, under_way[0][0] if under_way else begins)
            if until > now and len(under_way) == 1:
                done[under_way[0][1]] += until - now
            elif until > now and under_way:
                for index, speed in self._speeds(number, sorted([i for _, i in under_way]), alone, estimated):
                    done[index] += speed * (until - now)
            now = until
            while under_way and under_way[0][0] <= now:
                heapq.heappop(under_way)
            while cursor < len(running) and starts[running[cursor]] <= now:
                heapq.heappush(under_way, (ends[running[cursor]], running[cursor]))
                cursor += 1
        return [
            one * (ends[index] - starts[index]) / done[index] if done[index] else one for index, one in enumerate(alone)
        ]

    def _speeds(
        self, number: int, under_way: list[int], alone: Sequence[float], estimated: EstimatedKernels
    ) -> list[tuple[int, float]]:
        steps = self.job.steps[number]
        computing = [index for index in under_way if steps[index].does == "compute"]
        sending = [index for index in under_way if steps[index].does == "collective"]
        if not sending:
            return [(index, 1.0) for index in under_way]
        key = (number, tuple(under_way), tuple([alone[index] for index in sending]))
        found = self._known.get(key)
        if found is None:
            kernels = [self._kernel(number, index) for index in sending]
            lasting = [alone[index] / steps[index].repeat for index in sending]
            estimate = estimated[kernel_of(steps[computing[0]])] if computing else None
            found = self._known[key] = self.rates.of(estimate, kernels, lasting)
        speed, shares = found
        return [*[(index, speed) for index in computing], *zip(sending, shares, strict=True)]

    def _kernel(self, number: int, index: int) -> Kernel:
        found = self._kernels.get((number, index))
        if found is None:
            step = self.job.steps[number][index]
            collective = self.collective(number, step)
            found = Kernel(name=step.name, kind=KernelKind.COLLECTIVE, dtype="", geometry=collective)
            self._kernels[number, index] = found
        return found


def _takes_part(step: TraceStep) -> bool:
    if step.does == "collective":
        return step.stream[1] < FIRST_JOB_STREAM
    return step.does == "compute" and not step.waits
