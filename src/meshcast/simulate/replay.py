"""One rank's step again, with other times: along a tape where its events come in an order that was seen before (`simulate.tape`).

A program of a sweep is simulated as always the first times. Then its simulation is written down, and from there on done along the
tape, until somebody ends before somebody else who used to be first: such a step is simulated as always, and after some of
those another tape is made. Answers are the same to the last bit, whichever way they came (`tests/simulate/test_replay.py`).

Several points of a sweep go along a tape at once where their times are columns (`base.column`): all of them along each way that
is known, until each has one that it goes. What comes of them is put together again; points for which no tape is worth it part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside, NumberColumn, PartedError, joined, of_points, raw
from meshcast.estimate import EstimatedKernels
from meshcast.lower import Kernel
from meshcast.simulate.contention import Contention, SpeedShares, Taken
from meshcast.simulate.engine import RankRun, Simulator
from meshcast.simulate.executed import Executed
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length
from meshcast.simulate.network import KernelNetwork
from meshcast.simulate.rank import Rank
from meshcast.simulate.tape import Along, Slots, Tape, TapeColumns, TooLongError
from meshcast.simulate.timeline import Timeline
from meshcast.simulate.written import Kernels, WrittenContention, WrittenKernels, WrittenNetwork

FIRST = 3  # simulations of a program before one is written down, which takes as long as dozens
MOST = 4  # tapes of a program
MOST_OF_MANY = 16  # where each serves many points at once
FEWEST = 4  # points that are worth a tape of their own
LONELY = 4  # times as many have to be left for the next tape, for each one in a row that fewer than that go along
WORTH = 12  # simulations of single points along a tape that was written for many, before it is compiled for them
Mask = npt.NDArray[np.bool_]
ARGUMENTS = ("estimates", "gap", "seconds", "shares", "taken")


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """One order of a program's events: functions of times, and what runs in it."""

    tape: Tape = field(repr=False)
    many: bool  # whether it was written for several points at once
    lines: int  # of the tape that the length takes
    result: tuple[Length, tuple[Timeline, Length]] = field(repr=False)  # in the tape's numbers
    executed: Executed
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    def ready(self) -> bool:
        """Whether single points go along it: what is compiled for a few costs more than their simulations."""
        self._made["asked"] = self._made.get("asked", 0) + 1
        return not self.many or self._made["asked"] > WORTH

    def length(self, *times: Any) -> Length | None:
        """How long it takes; None where events come in another order."""
        return cast("Length | None", self._function("length")(*times))

    def timeline(self, *times: Any) -> tuple[Timeline, Length] | None:
        """Where its time goes."""
        return cast("tuple[Timeline, Length] | None", self._function("timeline")(*times))

    def together(self, points: int, times: tuple[Any, ...], begun: Slots | None = None, *, whole: bool) -> Along:
        """Several points along it.

        Args:
            points: How many.
            times: What the lines ask.
            begun: What the first lines came to, where only the rest is left to do.
            whole: Whether it is asked where the time goes, and not only how long it takes.
        """
        if "columns" not in self._made:
            self._made["columns"] = TapeColumns(self.tape, self.lines, *self.result)
        columns: TapeColumns = self._made["columns"]
        with np.errstate(all="ignore"):  # points that go another way may come to anything along this one
            return columns.run(points, dict(zip(ARGUMENTS, times, strict=True)), begun, whole=whole)

    def _function(self, name: str) -> Callable[..., Any]:
        """Compiled when it is first asked for, which takes as long as dozens of simulations."""
        found = self._made.get(name)
        if found is None:
            whole = name == "timeline"
            found = self.tape.function(ARGUMENTS, self.result[whole], lines=None if whole else self.lines)
            self._made[name] = found
        made: Callable[..., Any] = found
        return made


class Ways:
    """The orders of a program's events that are known."""

    def __init__(self) -> None:
        self.known: list[_Way] = []  # the one that was taken last comes first
        self._missed = 0
        self._next: float = FIRST
        self._lonely = 0

    def missed(self) -> bool:
        """Counts a step that goes none of the ways; whether it is written down: seldom, as that takes 20 to 100 ms."""
        self._missed += 1
        if self._missed <= self._next or len(self.known) >= MOST:
            return False
        self._next = 8 * self._missed
        return True

    def room(self, points: int) -> bool:
        """Whether there is room for one of many points.

        A program with several loops may have an order of its own at nearly every point: its tapes cost more than they spare.
        """
        worth = points >= FEWEST * LONELY**self._lonely
        return worth and self._next < math.inf and len(self.known) < MOST_OF_MANY

    def served(self, way: _Way, points: int) -> None:
        """How many points go along what was written down for many last; it is not kept for too few."""
        self._lonely = 0 if points >= FEWEST else self._lonely + 1
        if points < FEWEST:
            self.known.remove(way)

    def close(self) -> None:
        """No more are written down."""
        self.known.clear()
        self._next = math.inf


_WAYS: KeptBeside[Ways] = KeptBeside()


def rank_again(simulator: Simulator, kernels: Kernels, network: KernelNetwork, points: int | None = None) -> Rank:
    """One rank of a program that is simulated again and again, with these times; those of several points may be columns."""
    rates = simulator.rates(network)
    if points is None:
        assert isinstance(kernels, EstimatedKernels)
        return RankAgain(simulator.plan, kernels, network, rates, simulator.host_rate)
    return RanksAgain(simulator.plan, kernels, network, rates, simulator.host_rate, points)


class RankAgain:
    """A rank whose program is simulated again and again."""

    def __init__(
        self,
        plan: BlockPlan,
        kernels: EstimatedKernels,
        network: KernelNetwork,
        rates: SpeedShares | None,
        host_rate: float,
    ) -> None:
        self._plan, self._kernels, self._network, self._rates, self._host_rate = (
            plan,
            kernels,
            network,
            rates,
            host_rate,
        )
        contention = rates.contention if rates is not None else None
        self._ways = _WAYS.of(plan, (rates is None, contention is None, host_rate), Ways)
        taken = contention.taken if contention is not None else None
        self._times = kernels.by_key, kernels.gap, network.seconds, network.shares, taken
        self._way: _Way | None = None
        self._length: Length | None = None
        self._plain: RankRun | None = None

    def length(self, block: BlockPlan) -> Length:
        """How long a block takes."""
        if block is not self._plan:
            return self._simulated().length(block)
        if self._length is None:
            self._length = self._found()
        return self._length

    def executed(self, plan: BlockPlan) -> Executed:
        """Every kernel of a plan with how often it runs."""
        if plan is self._plan:
            self.length(plan)
            if self._way is not None:
                return self._way.executed
        return self._simulated().executed(plan)

    def timeline(self, block: BlockPlan, *, spans: bool = True, paths: bool = True) -> tuple[Timeline, Length]:
        """A block with all that runs in it."""
        if block is self._plan and not spans and not paths:
            self.length(block)
            found = self._way.timeline(*self._times) if self._way is not None else None
            if found is not None:
                return found
        return self._simulated().timeline(block, spans=spans, paths=paths)

    def _found(self) -> Length:
        known, left_out = self._ways.known, False
        for place, way in enumerate(known):
            if not way.ready():
                left_out = True
                continue
            found = way.length(*self._times)
            if found is not None:
                if place:
                    known.insert(0, known.pop(place))
                self._way = way
                return found
        if not left_out and self._ways.missed():
            try:
                way = _written_down(self._plan, self._kernels, self._network, self._rates, self._host_rate)
            except TooLongError:
                self._ways.close()
            else:
                known.insert(0, way)
        return self._simulated().length(self._plan)

    def _simulated(self) -> RankRun:
        """The rank as it is simulated always."""
        if self._plain is None:
            self._plain = RankRun(self._kernels, self._network, self._rates, self._host_rate)
        return self._plain


class _Taken(NamedTuple):
    """A way that some points go, and what its lines came to."""

    way: _Way
    points: Mask
    slots: Slots


class RanksAgain:
    """The same rank at several points of a sweep, whose times are columns."""

    def __init__(
        self,
        plan: BlockPlan,
        kernels: Kernels,
        network: KernelNetwork,
        rates: SpeedShares | None,
        host_rate: float,
        points: int,
    ) -> None:
        self._plan, self._kernels, self._network, self._rates = plan, kernels, network, rates
        self._host_rate, self._points = host_rate, points
        contention = rates.contention if rates is not None else None
        self._ways = _WAYS.of(plan, (rates is None, contention is None, host_rate), Ways)
        seconds, shares, taken = _raw_network(network, contention)
        self._times = kernels.by_key, raw(kernels.gap), seconds, shares, taken
        self._taken: list[_Taken] = []
        self._length: Length | None = None

    def length(self, block: BlockPlan) -> Length:
        """How long the whole step takes.

        Raises:
            PartedError: Some points have to go by themselves.
        """
        assert block is self._plan
        if self._length is None:
            self._taken, self._length = self._along(whole=False)
        return self._length

    def executed(self, plan: BlockPlan) -> Executed:
        """Every kernel of the step with how often it runs.

        Raises:
            PartedError: It is not the same at all points.
        """
        self.length(plan)
        first, *others = self._taken
        if any(each.way.executed is not first.way.executed for each in others):
            raise PartedError(first.points)
        return first.way.executed

    def timeline(self, block: BlockPlan, *, spans: bool = True, paths: bool = True) -> tuple[Timeline, Length]:
        """Where the step's time goes, without its spans.

        Raises:
            PartedError: Some points have to go by themselves.
        """
        assert not spans
        assert not paths
        self.length(block)
        found: tuple[Timeline, Length] = self._along(whole=True)[1]
        return found

    def _along(self, *, whole: bool) -> tuple[list[_Taken], Any]:
        """The ways that points go, and what comes of all of them.

        Raises:
            PartedError: There is none for some.
        """
        left = np.ones(self._points, dtype=bool)
        taken: list[_Taken] = []
        results: list[Any] = []
        begun = {id(each.way): each.slots for each in self._taken}  # what their first lines came to is known

        def go(way: _Way) -> None:
            nonlocal left
            kept, result, slots = way.together(self._points, self._times, begun.get(id(way)), whole=whole)
            if (here := kept & left).any():
                taken.append(_Taken(way, here, slots))
                results.append(result)
                left = left & ~here

        ways, known = [each.way for each in self._taken], self._ways.known
        for way in [*ways, *(each for each in known if each not in ways)]:
            if left.any():
                go(way)
        while left.any():
            before = int(left.sum())
            way = self._write_down(left)
            go(way)
            here = before - int(left.sum())
            self._ways.served(way, here if here and _differ(results[-1], taken[-1].points) else 0)
            if not here:
                raise self._by_themselves(left)
        first = [each.way for each in taken if each.way in known]
        known[:] = [*first, *(each for each in known if each not in first)]
        if len(results) == 1:
            return taken, results[0]
        places = [np.flatnonzero(each.points) for each in taken]
        return taken, joined([of_points(each, here) for each, here in zip(results, places, strict=True)], places)

    def _write_down(self, left: Mask) -> _Way:
        """Another tape, that of the first point that is left.

        Raises:
            PartedError: There is no room for one, or too few points for it: each of them goes alone.
        """
        if not self._ways.room(int(left.sum())):
            raise self._by_themselves(left)
        place = int(np.flatnonzero(left)[0])
        try:
            way = _written_down(
                self._plan, self._kernels, self._network, self._rates, self._host_rate, many=True, place=place
            )
        except TooLongError:
            self._ways.close()
            raise _each_alone(self._points) from None
        self._ways.known.append(way)
        return way

    def _by_themselves(self, left: Mask) -> PartedError:
        """Some points part from the others, or all from each other where none can go with any."""
        return _each_alone(self._points) if left.all() else PartedError(left)


def _differ(result: Any, points: Mask) -> bool:
    """Whether some points have different steps: a grid has the same one wherever it changes what the program does not read."""
    length: Length = result[1] if isinstance(result, tuple) else result
    seconds = np.broadcast_to(raw(length.all), points.shape)[points]
    return bool((seconds != seconds[0]).any())


def _each_alone(points: int) -> PartedError:
    return PartedError(np.zeros(points, dtype=bool))


def _raw_network(network: KernelNetwork, contention: Contention | None) -> tuple[Any, Any, Any]:
    """What tapes ask a network and a device: arrays instead of columns."""

    def seconds(kernel: Kernel) -> Any:
        return raw(network.seconds(kernel))

    def shares(active: Sequence[Kernel]) -> list[Any]:
        return [raw(share) for share in network.shares(active)]

    def taken(kernel: Kernel, lasting: Any) -> Taken:
        assert contention is not None
        given: Any = NumberColumn(lasting) if isinstance(lasting, np.ndarray) and lasting.ndim else lasting
        found = contention.taken(kernel, given)
        return Taken(raw(found.cores), raw(found.memory))

    return seconds, shares, taken if contention is not None else None


def _written_down(
    plan: BlockPlan,
    kernels: Kernels,
    network: KernelNetwork,
    rates: SpeedShares | None,
    host_rate: float,
    *,
    many: bool = False,
    place: int = 0,
) -> _Way:
    """The simulation of a step, that of one of several points, on a tape."""
    tape = Tape()
    written_network = WrittenNetwork(tape, network, place)
    written_rates: Any = None
    if rates is not None:
        contention = rates.contention
        written: Any = WrittenContention(tape, contention, place) if contention is not None else None
        written_rates = SpeedShares(network=written_network, contention=written)
    written_kernels: Any = WrittenKernels(tape, kernels, place)
    rank = RankRun(written_kernels, written_network, written_rates, host_rate)
    length = rank.length(plan)
    executed, lines = rank.executed(plan), tape.length
    return _Way(tape, many, lines, (length, rank.timeline(plan, spans=False, paths=False)), executed)
