"""One rank's step again, with other times: along a tape where its events come in an order that was seen before (`simulate.tape`).

A program of a sweep is simulated as always the first times. Then its simulation is written down, and from there on done along the
tape, until somebody ends before somebody else who used to be first: such a step is simulated as always, and after some of
those another tape is made. Answers are the same to the last bit, whichever way they came (`tests/simulate/test_replay.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshcast.base import KeptBeside
from meshcast.estimate import EstimatedKernels, KernelEstimate
from meshcast.lower import CostKey, Kernel
from meshcast.simulate.contention import Contention, SpeedShares, Taken
from meshcast.simulate.engine import RankRun, Simulator
from meshcast.simulate.executed import Executed
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length
from meshcast.simulate.network import KernelNetwork
from meshcast.simulate.rank import Rank
from meshcast.simulate.tape import Tape, TooLongError
from meshcast.simulate.timeline import Timeline

FIRST = 3  # simulations of a program before one is written down, which takes as long as dozens
MOST = 4  # tapes of a program
ARGUMENTS = ("estimates", "gap", "seconds", "shares", "taken")


@dataclass(frozen=True, slots=True)
class _Way:
    """One order of a program's events: functions of times, and what runs in it."""

    length: Callable[..., Length | None]
    timeline: Callable[..., tuple[Timeline, Length] | None]
    executed: Executed


class Ways:
    """The orders of a program's events that are known."""

    def __init__(self) -> None:
        self.known: list[_Way] = []  # the one that was taken last comes first
        self._missed = 0
        self._next = FIRST

    def missed(self) -> bool:
        """Counts a step that goes none of the ways; whether it is written down: seldom, as that takes 20 to 100 ms."""
        self._missed += 1
        if self._missed <= self._next or len(self.known) >= MOST:
            return False
        self._next = 8 * self._missed
        return True


_WAYS: KeptBeside[Ways] = KeptBeside()


def rank_again(simulator: Simulator, kernels: EstimatedKernels, network: KernelNetwork) -> Rank:
    """One rank of a program that is simulated again and again, with these times."""
    return RankAgain(simulator.plan, kernels, network, simulator.rates(network), simulator.host_rate)


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
                way = self._written_down()
            except TooLongError:
                self._ways.known.clear()
                self._ways.missed = _never  # type: ignore[method-assign]
            else:
                known.insert(0, way)
        return self._simulated().length(self._plan)

    def _simulated(self) -> RankRun:
        """The rank as it is simulated always."""
        if self._plain is None:
            self._plain = RankRun(self._kernels, self._network, self._rates, self._host_rate)
        return self._plain

    def _written_down(self) -> _Way:
        tape = Tape()
        network = _WrittenNetwork(tape, self._network)
        rates: Any = None
        if self._rates is not None:
            contention = self._rates.contention
            written: Any = _WrittenContention(tape, contention) if contention is not None else None
            rates = SpeedShares(network=network, contention=written)
        kernels: Any = _WrittenKernels(tape, self._kernels)
        rank = RankRun(kernels, network, rates, self._host_rate)
        length = rank.length(self._plan)
        executed = rank.executed(self._plan)
        by_length = tape.function(ARGUMENTS, length)
        by_timeline = tape.function(ARGUMENTS, rank.timeline(self._plan, spans=False, paths=False))
        return _Way(by_length, by_timeline, executed)


def _never() -> bool:
    return False


class _WrittenKernels:
    """Estimates whose numbers are written down."""

    def __init__(self, tape: Tape, kernels: EstimatedKernels) -> None:
        self._tape, self._kernels = tape, kernels
        self._known: dict[CostKey, _WrittenEstimate] = {}
        self.gap: Any = tape.number("gap", kernels.gap)

    def __getitem__(self, kernel: Kernel) -> Any:
        found = self._known.get(kernel.cost_key)
        if found is None:
            name = self._tape.named(f"estimates[{self._tape.thing(kernel.cost_key)}]")
            found = self._known[kernel.cost_key] = _WrittenEstimate(self._tape, name, self._kernels[kernel])
        return found


class _WrittenEstimate:
    """An estimate that writes down which of its numbers are asked for."""

    def __init__(self, tape: Tape, name: str, estimate: KernelEstimate) -> None:
        self._tape, self._name, self._estimate = tape, name, estimate

    def __getattr__(self, field: str) -> Any:
        value = getattr(self._estimate, field)
        text, used = f"{self._name}.{field}", frozenset({self._name})
        if isinstance(value, bool):
            return self._tape.checked(text, value, used)
        return self._tape.number(text, value, used)


class _Alike:
    """Of kernels that cost the same the first one stands for all: it is asked once."""

    def __init__(self) -> None:
        self._known: dict[CostKey, Kernel] = {}

    def first(self, kernel: Kernel) -> Kernel:
        """The first kernel of its cost."""
        return self._known.setdefault(kernel.cost_key, kernel)


class _WrittenNetwork:
    """A network that writes down what it is asked."""

    def __init__(self, tape: Tape, network: KernelNetwork) -> None:
        self._tape, self._network = tape, network
        self._alike = _Alike()

    def seconds(self, kernel: Kernel) -> Any:
        """Seconds of a collective."""
        kernel = self._alike.first(kernel)
        return self._tape.number(f"seconds({self._tape.thing(kernel)})", self._network.seconds(kernel))

    def shares(self, active: Sequence[Kernel]) -> Any:
        """The speeds of several collectives under way at once."""
        listed = ", ".join(self._tape.thing(self._alike.first(kernel)) for kernel in active)
        name = self._tape.named(f"shares([{listed}])")
        found = enumerate(self._network.shares(active))
        return [self._tape.number(f"{name}[{place}]", share, frozenset({name})) for place, share in found]


class _WrittenContention:
    """What collectives take of a device, written down."""

    def __init__(self, tape: Tape, contention: Contention) -> None:
        self._tape, self._contention = tape, contention
        self._alike = _Alike()

    def taken(self, kernel: Kernel, seconds: Any) -> Taken:
        """The shares that a collective takes which lasts so long alone."""
        kernel = self._alike.first(kernel)
        name = self._tape.named(f"taken({self._tape.thing(kernel)}, {seconds.name})", frozenset({seconds.name}))
        found, used = self._contention.taken(kernel, seconds.value), frozenset({name})
        cores: Any = self._tape.number(f"{name}.cores", found.cores, used)
        memory: Any = self._tape.number(f"{name}.memory", found.memory, used)
        return Taken(cores, memory)
