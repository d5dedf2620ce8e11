"""A step of ranks that are not alike: one rank of each class, all in step, with collectives that wait for the slowest.

Every class runs the same kernels on the same streams, in the order that is chosen for one rank at full speed (a program
is put in order before it runs), each at its own speed. For class a and a collective k whose groups hold the classes
M(a, k),

    start(a, k) = max over b in M(a, k) of arrival(b, k),    end(a, k) = start(a, k) + t_k

where `arrival` is what the single rank's simulation calls the start. Blocks are placed by the code that places those of a
single rank (`simulate.block_times`, `simulate.events`), so scheduler, channels, shared links and what communication takes from
compute are the same, and so is the answer with one class at full speed. A permutation is taken to wait for the whole of
its ring.

In a fixed order without contention all starts are maxima of sums of durations: a slower device never makes a step faster.

A loop is run until an iteration adds the same time to all classes that meet in it: then every further one does, because
shifting all starts shifts all ends (max-plus linearity; Baccelli 1992, "Synchronization and Linearity"). With contention
that holds as well: only differences between times count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.base import Group, group_numbers
from meshcast.hardware import Conditions
from meshcast.lower import Kernel, LoopStep
from meshcast.network import Setting
from meshcast.simulate.block_times import Placed, place_together
from meshcast.simulate.classes import Ints, RankClasses, refine
from meshcast.simulate.engine import KernelTimes, RankRun, Simulator, costliest
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import NOTHING, Length
from meshcast.simulate.network import CommunicationTime, KernelNetwork
from meshcast.simulate.timeline import COMPUTE, stream_of

Floats = npt.NDArray[np.float64]
STEADY = 1e-12  # relative difference below which two durations are the same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassRun:
    """A step by class; times in seconds.

    Attributes:
        classes: The classes.
        speed: Compute speed of each, as a share of the healthy one.
        ends: When each is done.
        busy: How long each computes; what communication adds to that is not in it.
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


def rank_speeds(setting: Setting, ranks: int) -> Floats | None:
    """The speed of every rank where it is placed; None where all devices are at full speed."""
    speed = device_speeds(setting.conditions, setting.devices)
    if speed is None:
        return None
    return speed[:ranks] if setting.placement is None else speed[list(setting.placement.devices)]


def device_speeds(conditions: Conditions, devices: int) -> Floats | None:
    """The speed of every device; None where all are at full speed."""
    if all(share == 1 for share in conditions.speed.values()):
        return None
    speed = np.ones(devices)
    for device, share in conditions.speed.items():
        speed[device] = share
    return speed


def simulate_classes(
    simulator: Simulator, kernels: KernelTimes, network: KernelNetwork | CommunicationTime, speed: Floats
) -> ClassRun:
    """The step of all ranks, each at its own speed.

    Args:
        simulator: The program as it is planned for one rank.
        kernels: Times of compute kernels at full speed.
        network: Times of collectives once all have arrived, and what they make of each other.
        speed: The speed of every rank, as a share of the full one.
    """
    groups = list(dict.fromkeys(_groups(simulator.plan)))
    classes = refine(np.unique(speed, return_inverse=True)[1], [group_numbers(group, len(speed)) for group in groups])
    # Who meets whom is an equivalence: ranks of one class have groups with the same classes in them.
    parties = {
        group: together.argmax(axis=1).tolist() for group, together in zip(groups, classes.together, strict=True)
    }
    by_class = speed[classes.first]
    rank = simulator.with_times(kernels, network)
    lengths = _Classes(rank, by_class.tolist(), parties).block(simulator.plan, [0.0] * classes.count)
    return ClassRun(
        classes=classes,
        speed=by_class,
        ends=np.array([length.last for length in lengths]),
        busy=_computing(rank, simulator.plan) / by_class,
        waiting=np.array([length.waited for length in lengths]),
    )


class _Classes:
    """One rank of each class, block by block."""

    def __init__(self, rank: RankRun, speed: Sequence[float], parties: dict[Group, list[int]]) -> None:
        self._rank = rank
        self._speed = speed
        self._parties = parties
        self._chosen: dict[int, Placed] = {}  # blocks of one rank at full speed, by identity: the plan holds them
        self._kernels: dict[int, list[Sequence[Length]]] = {}

    def block(self, block: BlockPlan, starts: Sequence[float]) -> list[Length]:
        """A block that the classes enter at `starts`."""
        key = id(block)
        if key not in self._chosen:
            self._chosen[key] = self._rank.placed(block)
            self._kernels[key] = [self._kernel(step) if isinstance(step, Kernel) else () for step in block.steps]
        # Counted from the first that enters, so that times are as exact as those of one rank.
        first = min(starts)
        entering = _Entering(self, block, self._kernels[key], [start - first for start in starts])
        return place_together(block, self._chosen[key], entering, self._rank.estimates(block), self._rank.rates)

    def inner(self, block: BlockPlan, index: int, starts: Sequence[float]) -> list[Length]:
        """A loop or branch of a block."""
        step, bodies = block.steps[index], block.bodies[index]
        if isinstance(step, LoopStep):
            turns = self._loop(bodies[0], step.trips, starts)
            return [turn.at_least(step.trips * self._rank.copying(step)) for turn in turns]
        runs = [self.block(body, starts) for body in bodies]
        return [costliest(run[number] for run in runs) for number in range(len(starts))]

    def parties(self, kernel: Kernel) -> list[int]:
        """The classes of ranks that meet in a collective."""
        assert kernel.collective is not None
        return self._parties[kernel.collective.group]

    def _kernel(self, kernel: Kernel) -> Sequence[Length]:
        if kernel.collective is not None:
            return (self._rank.kernel(kernel),) * len(self._speed)
        return [self._rank.kernel(kernel, speed) for speed in self._speed]

    def _loop(self, body: BlockPlan, trips: int, starts: Sequence[float]) -> list[Length]:
        parts = _connected(body, self._parties, len(starts))
        total, at, left = [NOTHING] * len(starts), list(starts), trips
        while left:
            turn = self.block(body, at)
            # Shifting all classes of a part by the same time shifts all that follows: no need to look again.
            times = left if _uniform(np.array([length.all for length in turn]), parts) else 1
            total = [before.then(length.times(times)) for before, length in zip(total, turn, strict=True)]
            at = [now + times * length.all for now, length in zip(at, turn, strict=True)]
            left -= times
        return total


@dataclass(frozen=True, slots=True)
class _Entering:
    """The classes in one block (`simulate.lengths.Ranks`)."""

    classes: _Classes
    block: BlockPlan
    kernels: Sequence[Sequence[Length]]
    entered: Sequence[float]

    def lengths(self, index: int, starts: Sequence[float]) -> Sequence[Length]:
        """The seconds of a kernel at each class's speed; of a loop or branch, from the moment at which each class enters it."""
        return self.kernels[index] or self.classes.inner(self.block, index, starts)

    def parties(self, index: int) -> Sequence[int]:
        """Classes that meet in a collective."""
        step = self.block.steps[index]
        assert isinstance(step, Kernel)
        return self.classes.parties(step)


def _computing(rank: RankRun, block: BlockPlan) -> float:
    """Seconds of compute kernels in a block, at full speed; of branches the longest."""
    seconds = 0.0
    for step, bodies in zip(block.steps, block.bodies, strict=True):
        if not isinstance(step, Kernel):
            trips = step.trips if isinstance(step, LoopStep) else 1
            seconds += trips * max((_computing(rank, body) for body in bodies), default=0.0)
        elif stream_of(step) == COMPUTE:
            seconds += rank.kernel(step).last
    return seconds


def _uniform(added: Floats, parts: Ints) -> bool:
    """Whether classes of the same part are all delayed by the same."""
    lowest, highest = np.full(len(added), np.inf), np.full(len(added), -np.inf)
    np.minimum.at(lowest, parts, added)
    np.maximum.at(highest, parts, added)
    return bool(np.all(highest[parts] - lowest[parts] <= STEADY * np.maximum(1e-30, np.abs(highest[parts]))))


def _connected(body: BlockPlan, parties: dict[Group, list[int]], count: int) -> Ints:
    """A number for each class, the same for those that meet inside a block, directly or through others."""
    parts: Ints = np.arange(count)
    groups = [np.array(parties[group]) for group in dict.fromkeys(_groups(body))]
    before: Ints | None = None
    while before is None or not np.array_equal(before, parts):
        before = parts.copy()
        for met in groups:
            least = np.full(count, count)
            np.minimum.at(least, met, parts)
            parts = least[met]
    return parts


def _groups(block: BlockPlan) -> Iterator[Group]:
    """Groups of collectives in a block, in the order of the program."""
    for step, bodies in zip(block.steps, block.bodies, strict=True):
        if isinstance(step, Kernel) and step.collective is not None:
            yield step.collective.group
        for body in bodies:
            yield from _groups(body)
