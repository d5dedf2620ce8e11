"""A step of ranks that are not alike: one rank of each class, all in step, with collectives that wait for the slowest.

Every class runs the same kernels in the same order (`simulate.issue_order`), at its own speed. For class a and a
collective k whose groups hold the classes M(a, k),

    start(a, k) = max over b in M(a, k) of arrival(b, k),    end(a, k) = start(a, k) + t_k

where `arrival` is what the single rank's simulation calls the start. With one class at full speed this is that simulation
(`simulate.engine`), and so is its answer. A permutation is taken to wait for the whole of its ring.

A loop is run until an iteration adds the same time to all classes that meet in it: then every further one does, because
shifting all starts shifts all ends (max-plus linearity; Baccelli 1992, "Synchronization and Linearity").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.hardware.conditions import Conditions
from meshcast.lower.kernel import Kernel, LoopStep, LoweredProgram
from meshcast.mesh import Group, group_numbers
from meshcast.simulate.classes import Ints, RankClasses, refine
from meshcast.simulate.copies import Copies
from meshcast.simulate.engine import KernelTimes
from meshcast.simulate.issue_order import BlockPlan, plan
from meshcast.simulate.network import CommunicationTime
from meshcast.simulate.timeline import COPY, stream_of

Floats = npt.NDArray[np.float64]
STEADY = 1e-12  # relative difference below which two durations are the same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassRun:
    """A step by class; times in seconds.

    Attributes:
        classes: The classes.
        speed: Compute speed of each, as a share of the healthy one.
        ends: When each is done.
        busy: How long each computes.
        waiting: How long each waits at collectives for slower ones.
    """

    classes: RankClasses
    speed: Floats
    ends: Floats
    busy: Floats
    waiting: Floats

    @property
    def duration(self) -> float:
        """When all are done."""
        return float(self.ends.max())


def device_speeds(conditions: Conditions, devices: int) -> Floats | None:
    """The speed of every device; None where all are at full speed."""
    if all(share == 1 for share in conditions.speed.values()):
        return None
    speed = np.ones(devices)
    for device, share in conditions.speed.items():
        speed[device] = share
    return speed


def classes_of(
    lowered: LoweredProgram, devices: int, speed: Floats
) -> tuple[RankClasses, Callable[[Group], npt.NDArray[np.bool_]]]:
    """The classes of a program's ranks, and which of them meet in a collective's groups."""
    groups = list(dict.fromkeys(k.collective.group for k, _ in lowered.schedule.walk() if k.collective is not None))
    classes = refine(np.unique(speed, return_inverse=True)[1], [group_numbers(group, devices) for group in groups])
    meeting = dict(zip(groups, classes.together, strict=True))
    return classes, lambda group: meeting[group]


def simulate_classes(
    lowered: LoweredProgram, kernels: KernelTimes, communication: CommunicationTime, speed: Floats
) -> ClassRun:
    """The step of all ranks, each at its own speed.

    Args:
        lowered: The kernels in program order.
        kernels: Times of compute kernels at full speed.
        communication: Seconds of a collective kernel once all have arrived.
        speed: Of every rank, as a share of the full one.
    """
    classes, meeting = classes_of(lowered, len(speed), speed)
    by_class = speed[classes.first]
    run = _ClassSimulation(kernels, communication, by_class, meeting)
    block = run.block(plan(lowered.schedule, reorder=lowered.lowering == "modelled"), np.zeros(classes.count))
    return ClassRun(classes=classes, speed=by_class, ends=block.last, busy=block.busy, waiting=block.waiting)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """A block by class: ends with and without the last gap (absolute), and sums over it."""

    all: Floats
    last: Floats
    free: Floats
    busy: Floats
    waiting: Floats


class _ClassSimulation:
    def __init__(
        self,
        kernels: KernelTimes,
        communication: CommunicationTime,
        speed: Floats,
        meeting: Callable[[Group], npt.NDArray[np.bool_]],
    ) -> None:
        self._kernels = kernels
        self._communication = communication
        self._speed = speed
        self._meeting = meeting

    def block(self, block: BlockPlan, start: Floats) -> _Block:
        """A block that all its streams enter at `start`, in the order that ends first."""
        runs = [self._in_order(block, order, start) for order in block.orders]
        fastest = min(runs, key=lambda run: float(run.all.max()))
        earliest = min(runs, key=lambda run: float(run.last.max()))
        return _Block(
            all=fastest.all, last=earliest.last, free=fastest.free, busy=fastest.busy, waiting=fastest.waiting
        )

    def _in_order(self, block: BlockPlan, order: Sequence[int], start: Floats) -> _Block:
        count = len(self._speed)
        compute, communication, last = start.copy(), start.copy(), start.copy()
        busy, waiting = np.zeros(count), np.zeros(count)
        ends: dict[int, Floats] = {}
        places = [([0.0] * len(block.steps), [0.0] * len(block.steps)) for _ in range(count)]
        copies = [Copies(starts, done) for starts, done in places]
        for index in order:
            step, before = block.steps[index], block.before[index] if block.before else ()
            if isinstance(step, Kernel) and stream_of(step) == COPY:
                seconds = self._kernels[step].time / self._speed
                for rank in range(count):
                    copies[rank].issue(
                        index, float(seconds[rank]), at=float(compute[rank]), next_step="prefetch" in step.flags
                    )
                continue
            for rank in range(count):
                compute[rank] = copies[rank].waited_for(before, float(compute[rank]))
            ready = start.copy()
            for earlier in before:
                done = ends.get(earlier)
                ready = np.maximum(ready, done if done is not None else [own[1][earlier] for own in places])
            if isinstance(step, Kernel) and step.collective is not None:
                arrival = np.maximum(ready, communication)
                begin = self._met(step.collective.group, arrival)
                waiting += begin - arrival
                seconds = np.full(count, self._communication(step))
                communication = ends[index] = begin + seconds
                end = communication
            else:
                begin = np.maximum(ready, compute)
                if isinstance(step, Kernel):
                    everything, own, free = self._kernel(step)
                    busy += own
                    end, after = begin + own, begin + everything
                    seconds = everything
                else:
                    begin = np.maximum(begin, communication)
                    inner = self._inner(block, index, begin)
                    end, after, free = inner.last, inner.all, inner.free
                    busy += inner.busy
                    waiting += inner.waiting
                    communication = after
                    seconds = after - begin
                for rank in range(count):
                    gap = float(begin[rank] - compute[rank])
                    copies[rank].run_beside(float(compute[rank]), float(begin[rank]), free=gap)
                    copies[rank].run_beside(float(begin[rank]), float(after[rank]), free=float(free[rank]))
                compute = ends[index] = after
            last = np.where(seconds > 0, np.maximum(last, end), last)
        finished = np.array([copies[rank].finished(float(compute[rank])) for rank in range(count)])
        last = np.where(finished > compute, np.maximum(last, finished), last)
        unused = np.array([each.unused for each in copies])
        return _Block(all=np.maximum(finished, communication), last=last, free=unused, busy=busy, waiting=waiting)

    def _met(self, group: Group, arrival: Floats) -> Floats:
        """When a collective starts, by class: with the last of all that meet in a group."""
        together = self._meeting(group)
        latest: Floats = np.where(together, arrival[None, :], -np.inf).max(axis=1)
        return latest

    def _kernel(self, kernel: Kernel) -> tuple[Floats, Floats, Floats]:
        """(seconds with the gap after it, without, that the memory is free), by class."""
        estimate = self._kernels[kernel]
        seconds = estimate.time / self._speed
        everything = seconds + (self._kernels.gap if estimate.time else 0.0)
        return everything, seconds, np.maximum(0.0, everything - estimate.memory_time / self._speed)

    def _inner(self, block: BlockPlan, index: int, start: Floats) -> _Block:
        """A loop or branch from `start`."""
        step, bodies = block.steps[index], block.bodies[index]
        zero = np.zeros(len(start))
        nothing = _Block(all=start, last=start, free=zero, busy=zero, waiting=zero)
        if not isinstance(step, LoopStep):
            runs = [self.block(body, start) for body in bodies] or [nothing]
            longest = max(runs, key=lambda run: float(run.all.max()))
            return _Block(
                all=np.max([run.all for run in runs], axis=0),
                last=np.max([run.last for run in runs], axis=0),
                free=np.min([run.free for run in runs], axis=0),
                busy=longest.busy,
                waiting=longest.waiting,
            )
        return self._loop(bodies[0], step.trips, start) if step.trips else nothing

    def _loop(self, body: BlockPlan, trips: int, start: Floats) -> _Block:
        parts = _connected(body, self._meeting, len(start))
        at, busy, waiting, free = start, np.zeros(len(start)), np.zeros(len(start)), np.zeros(len(start))
        left = trips
        while left > 1:
            turn = self.block(body, at)
            added = turn.all - at
            # Shifting all classes of a part by the same time shifts all that follows: no need to look again.
            times = left - 1 if _uniform(added, parts) else 1
            busy, waiting, free = busy + times * turn.busy, waiting + times * turn.waiting, free + times * turn.free
            at = at + times * added
            left -= times
        final = self.block(body, at)
        return _Block(
            all=final.all,
            last=final.last,
            free=free + final.free,
            busy=busy + final.busy,
            waiting=waiting + final.waiting,
        )


def _uniform(added: Floats, parts: Ints) -> bool:
    """Whether classes of the same part are all delayed by the same."""
    lowest, highest = np.full(len(added), np.inf), np.full(len(added), -np.inf)
    np.minimum.at(lowest, parts, added)
    np.maximum.at(highest, parts, added)
    return bool(np.all(highest[parts] - lowest[parts] <= STEADY * np.maximum(1e-30, np.abs(highest[parts]))))


def _connected(body: BlockPlan, meeting: Callable[[Group], npt.NDArray[np.bool_]], count: int) -> Ints:
    """A number for each class, the same for those that meet inside a block, directly or through others."""
    reach = np.eye(count, dtype=np.bool_)
    for group in _groups(body):
        reach |= meeting(group)
    for _ in range(count.bit_length()):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    parts: Ints = np.argmax(reach, axis=1)
    return parts


def _groups(body: BlockPlan) -> set[Group]:
    found = {step.collective.group for step in body.steps if isinstance(step, Kernel) and step.collective is not None}
    for bodies in body.bodies:
        for inner in bodies:
            found |= _groups(inner)
    return found
