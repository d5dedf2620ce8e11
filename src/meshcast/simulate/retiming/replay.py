"""One rank's step again, with other times: along a tape where its events come in an order that was seen before
(`simulate.retiming.tape`).

A program of a sweep is simulated as always the first times. Then its simulation is written down, and from there on done along the
tape, until somebody ends before somebody else who used to be first: such a step is simulated as always, and after some of
those another tape is made. Answers are the same to the last bit, whichever way they came
(`tests/simulate/retiming/test_replay.py`).

Several points of a sweep whose times are columns (`base.column`) need no tape: they are simulated at once (`points_run`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from meshcast.base import KeptBeside
from meshcast.estimate import EstimatedKernels
from meshcast.simulate.contention import SpeedShares
from meshcast.simulate.engine import RankRun, Simulator
from meshcast.simulate.executed import Executed
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length
from meshcast.simulate.network import KernelNetwork
from meshcast.simulate.rank import Rank
from meshcast.simulate.retiming.points_run import Kernels, PointsRun
from meshcast.simulate.retiming.tape import Tape, TooLongError
from meshcast.simulate.retiming.taped import WrittenContention, WrittenKernels, WrittenNetwork
from meshcast.simulate.timeline import Timeline

FIRST = 3  # simulations of a program before one is written down, which takes as long as dozens
MOST = 4  # tapes of a program
ARGUMENTS = ("estimates", "gap", "seconds", "shares", "taken")


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """One order of a program's events: functions of times, and what runs in it."""

    tape: Tape = field(repr=False)
    lines: int  # of the tape that the length takes
    result: tuple[Length, tuple[Timeline, Length]] = field(repr=False)  # in the tape's numbers
    executed: Executed
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    def length(self, *times: Any) -> Length | None:
        """How long it takes; None where events come in another order."""
        return cast("Length | None", self._function("length")(*times))

    def timeline(self, *times: Any) -> tuple[Timeline, Length] | None:
        """Where its time goes."""
        return cast("tuple[Timeline, Length] | None", self._function("timeline")(*times))

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

    def missed(self) -> bool:
        """Counts a step that goes none of the ways; whether it is written down: seldom, as that takes 20 to 100 ms."""
        self._missed += 1
        if self._missed <= self._next or len(self.known) >= MOST:
            return False
        self._next = 8 * self._missed
        return True

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
    return PointsRun(kernels, network, rates, simulator.host_rate, points)


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
        known = self._ways.known
        for place, way in enumerate(known):
            found = way.length(*self._times)
            if found is not None:
                if place:
                    known.insert(0, known.pop(place))
                self._way = way
                return found
        if self._ways.missed():
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


def _written_down(
    plan: BlockPlan, kernels: EstimatedKernels, network: KernelNetwork, rates: SpeedShares | None, host_rate: float
) -> _Way:
    """The simulation of a step on a tape."""
    tape = Tape()
    written_network = WrittenNetwork(tape, network)
    written_rates: Any = None
    if rates is not None:
        contention = rates.contention
        written: Any = WrittenContention(tape, contention) if contention is not None else None
        written_rates = SpeedShares(network=written_network, contention=written)
    written_kernels: Any = WrittenKernels(tape, kernels)
    rank = RankRun(written_kernels, written_network, written_rates, host_rate)
    length = rank.length(plan)
    executed, lines = rank.executed(plan), tape.length
    return _Way(tape, lines, (length, rank.timeline(plan, spans=False, paths=False)), executed)
