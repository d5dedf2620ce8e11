"""One rank's step: kernels on a compute stream, channels of collectives and a copy engine, in an order that data allows.

Equal ranks of an SPMD program behave alike, so one rank stands for all; a collective takes the time of its whole group.
Each stream runs one kernel at a time, in the order that `issue_order` fixed; `placement` says when. Loops and branches
take all streams (XLA finishes a loop body's collectives inside the body), so a body is simulated once and multiplied;
what a loop could overlap from one turn to the next is for the lowering to unfold (`lower.overlap.prefetch`). What a turn moves to
or from the host's memory runs beside it, so that it takes the longer of the two (`lower.overlap.offload`). Copies that a compiler
starts beside compute take what compute leaves of the memory's time (`simulate.copies`).

Every compute kernel is followed by the gap until its stream can run the next one. Nothing waits for the last gap, so a
block has two lengths: `all`, after which another can begin, and `last`, when its last kernel ends. A loop takes
`(trips - 1) * all + last`, each of several orders may give the least `all` and the least `last`, and a step takes the
`last` of its outermost block. Without contention both are maxima, minima and sums of durations, hence monotone in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from meshcast.base import Group, KeptBeside, larger
from meshcast.estimate import KernelEstimate
from meshcast.lower import CostKey, Kernel, LoopStep, LoweredProgram, Step
from meshcast.simulate.block_times import Order, Placed, place
from meshcast.simulate.contention import Contention, SpeedShares
from meshcast.simulate.critical import critical_path, flattened, shortened
from meshcast.simulate.executed import Executed, executed
from meshcast.simulate.exposure import Interval, added_up, covered, exposed_by
from meshcast.simulate.issue_order import BlockPlan, plan
from meshcast.simulate.lengths import NOTHING, Length
from meshcast.simulate.network import CommunicationTime, KernelNetwork, Uncontended, as_network
from meshcast.simulate.rank import Rank
from meshcast.simulate.scheduling import Scheduling
from meshcast.simulate.timeline import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    Breakdown,
    GroupTime,
    Repeat,
    Slowdown,
    Span,
    Timeline,
    stream_of,
)

ROUNDING = 1e-9


class KernelTimes(Protocol):
    """Answers for compute kernels, and the seconds between consecutive kernels of a stream."""

    @property
    def gap(self) -> float:
        """Seconds between consecutive kernels."""

    def __getitem__(self, kernel: Kernel) -> KernelEstimate:
        """The answer for a kernel, the same for all with its cost key; one that takes no time is not launched."""


def simulate(lowered: LoweredProgram, kernels: KernelTimes, network: KernelNetwork | CommunicationTime) -> Timeline:
    """The timeline of one rank.

    Args:
        lowered: The kernels in program order.
        kernels: Times of compute kernels.
        network: Times of collectives, and what they make of each other; or a function of times alone.
    """
    return Simulator(lowered).run(kernels, network)


class Simulator:
    """A lowered program, planned once, to be run with any number of different times."""

    def __init__(
        self,
        lowered: LoweredProgram,
        scheduling: Scheduling | None = None,
        contention: Contention | None = None,
        host_rate: float = math.inf,
    ) -> None:
        self.plan = plan(lowered.schedule, scheduling, reorder=lowered.lowering == "modelled")
        self._contention = contention
        self.host_rate = host_rate  # bytes/s to or from the host's memory

    @property
    def channels(self) -> int:
        """Collectives that can be under way at once."""
        return self.plan.channels

    @property
    def contended(self) -> bool:
        """Whether compute and communication can slow each other down: not beside a compiler's own copies."""
        return self._contention is not None and _can_contend(self.plan)

    def run(self, kernels: KernelTimes, network: KernelNetwork | CommunicationTime) -> Timeline:
        """The timeline of one rank."""
        return self.timeline(self.with_times(kernels, network))

    def timeline(self, rank: Rank, *, spans: bool = True, paths: bool = True) -> Timeline:
        """The timeline of a rank of this program; without its spans or its critical path where nobody asks for them."""
        timeline, length = rank.timeline(self.plan, spans=spans, paths=paths)
        parts, gap = timeline.breakdown, length.all - length.last
        return replace(
            timeline,
            duration=length.last,
            breakdown=replace(parts, overhead=larger(0.0, parts.overhead - gap)),
            critical=shortened(flattened(timeline.path), gap) if paths else (),
        )

    def duration(self, kernels: KernelTimes, network: KernelNetwork | CommunicationTime) -> float:
        """The duration of that timeline, without its spans."""
        return self.with_times(kernels, network).length(self.plan).last

    def with_times(self, kernels: KernelTimes, network: KernelNetwork | CommunicationTime) -> RankRun:
        """One rank with these times, to be asked about single blocks."""
        model = as_network(network)
        return RankRun(kernels, model, self.rates(model), self.host_rate)

    def rates(self, network: KernelNetwork) -> SpeedShares | None:
        """How what is under way at once slows each other; None where nothing is slowed, and the faster way of placing will do.

        So it is alone on a channel and without effect on compute.
        """
        apart = self.plan.channels < 2 or isinstance(network, Uncontended)
        return None if apart and self._contention is None else SpeedShares(network=network, contention=self._contention)


class RankRun:
    """Blocks of one rank's program with given times."""

    def __init__(
        self, kernels: KernelTimes, network: KernelNetwork, rates: SpeedShares | None, host_rate: float = math.inf
    ) -> None:
        self._kernels = kernels
        self._host_rate = host_rate
        self._network = network
        self._alone: dict[CostKey, Length] = {}  # of compute kernels at full speed: equal ones are as long
        self._blocks: dict[int, tuple[list[Length], Placed]] = {}  # by identity: whoever asks holds the plan
        self._asked: dict[int, list[KernelEstimate | None]] = {}  # the same
        self.rates = rates

    def length(self, block: BlockPlan) -> Length:
        """How long a block takes."""
        return self.placed(block).length

    def placed(self, block: BlockPlan) -> Placed:
        """When a block's steps run."""
        return self._timed(block)[1]

    def _timed(self, block: BlockPlan) -> tuple[list[Length], Placed]:
        """How long each of a block's steps takes alone, and when it runs; worked out once."""
        found = self._blocks.get(id(block))
        if found is None:
            lengths = [
                self.kernel(step)
                if isinstance(step, Kernel)
                else costliest([self.length(body) for body in bodies])
                .at_least(self.copying(step))
                .times(trips_of(step))
                for step, bodies in zip(block.steps, block.bodies, strict=True)
            ]
            placed = place(block, lengths, self.estimates(block), self.rates)
            found = self._blocks[id(block)] = lengths, placed
        return found

    def executed(self, plan: BlockPlan) -> Executed:
        """Every kernel of a plan with how often it runs, in the order in which they start: of branches the longer one."""
        return self.executed_in(plan, lambda block: self.placed(block).order)

    def executed_in(self, plan: BlockPlan, order_of: Callable[[BlockPlan], Order]) -> Executed:
        """The same where blocks run in given orders."""
        taken: list[int] = []
        waiting = [plan]
        while waiting:
            block = waiting.pop()
            taken.append(block.orders.index(order_of(block)))
            for bodies in filter(None, block.bodies):
                body = self._longest(bodies)
                assert body is not None
                taken.append(next(number for number, each in enumerate(bodies) if each is body))
                waiting.append(body)
        return executed(plan, tuple(taken), lambda: self._walked(plan, order_of))

    def _walked(self, block: BlockPlan, order_of: Callable[[BlockPlan], Order]) -> Iterator[tuple[Kernel, int]]:
        around = [(iter(order_of(block)), block, 1)]
        while around:
            order, block, count = around[-1]
            index = next(order, None)
            if index is None:
                around.pop()
                continue
            step = block.steps[index]
            if isinstance(step, Kernel):
                yield step, count
            elif (body := self._longest(block.bodies[index])) is not None:
                around.append((iter(order_of(body)), body, count * trips_of(step)))

    def _longest(self, bodies: Sequence[BlockPlan]) -> BlockPlan | None:
        """The body of a loop, or of branches the first of those that take longest."""
        return max(bodies, key=lambda body: self.length(body).all, default=None) if len(bodies) != 1 else bodies[0]

    def timeline(self, block: BlockPlan, *, spans: bool = True, paths: bool = True) -> tuple[Timeline, Length]:
        """A block with all that runs in it; without its spans or its critical path where nobody asks for them."""
        lengths, placed = self._timed(block)
        streams = streams_of(block)
        inner: dict[int, Timeline] = {}
        for index, (step, bodies) in enumerate(zip(block.steps, block.bodies, strict=True)):
            if not streams[index]:
                body = self._longest(bodies)
                longest = EMPTY if body is None else self.timeline(body, spans=spans, paths=paths)[0]
                inner[index] = longest.lasting(self.copying(step), "waiting for the host's memory")
        timeline = self._summed(block, lengths, placed, inner)
        if spans:
            steps = tuple(self._span(block, placed, index, inner.get(index)) for index in placed.order)
            timeline = replace(timeline, spans=steps)
        if paths:
            timeline = replace(timeline, path=critical_path(block, placed, inner, self._is_memory))
        return timeline, placed.length

    def _span(self, block: BlockPlan, placed: Placed, index: int, body: Timeline | None) -> Span | Repeat:
        """A step in time."""
        step, start, end = block.steps[index], placed.starts[index], placed.ends[index]
        if isinstance(step, Kernel):
            channel = block.lanes[index] if block.lanes else 0
            return Span(kernel=step, stream=stream_of(step), start=start, end=end, channel=channel)
        assert body is not None
        if not isinstance(step, LoopStep):
            return Repeat(label="branch", body=body, trips=1, start=start, end=end)
        return Repeat(
            label=step.label, body=body, trips=step.trips, start=start, end=end, host_bytes=step.host_bytes,
            fetched_bytes=step.fetched_bytes, copying=self.copying(step),
        )  # fmt: skip

    def copying(self, step: Step) -> float:
        """Seconds that what a turn of a loop moves to or from the host's memory takes, beside its kernels."""
        return step.host_bytes / self._host_rate if isinstance(step, LoopStep) else 0.0

    def estimates(self, block: BlockPlan) -> list[KernelEstimate | None]:
        """The estimate of every step that speeds under contention depend on; empty where no speed changes."""
        return self._answers(block) if self.rates is not None and block.concurrent else []

    def _answers(self, block: BlockPlan) -> list[KernelEstimate | None]:
        """The estimate of every compute kernel and copy of a block, by step."""
        found = self._asked.get(id(block))
        if found is None:
            found = self._asked[id(block)] = [
                self._kernels[step] if isinstance(step, Kernel) and step.collective is None else None
                for step in block.steps
            ]
        return found

    def kernel(self, kernel: Kernel, speed: float = 1.0) -> Length:
        """A kernel alone, on a device of this compute speed as a share of the full one; gaps are the host's, and stay."""
        if kernel.collective is not None:
            seconds = self._network.seconds(kernel)
            return Length(seconds, seconds)
        if speed != 1.0:
            return self._computing(kernel, speed)
        found = self._alone.get(kernel.cost_key)
        if found is None:
            found = self._alone[kernel.cost_key] = self._computing(kernel, speed)
        return found

    def _computing(self, kernel: Kernel, speed: float) -> Length:
        estimate = self._kernels[kernel]
        seconds = estimate.time / speed
        if stream_of(kernel) == COPY:
            return Length(seconds, seconds)
        everything = seconds + self._gap_after(seconds)
        return Length(everything, seconds, max(0.0, everything - estimate.memory_time / speed))

    def _gap_after(self, seconds: float) -> float:
        """A kernel that takes no time is none: an empty tensor's, or one that a question leaves out."""
        return self._kernels.gap if seconds else 0.0

    def _is_memory(self, kernel: Kernel) -> bool:
        """Whether memory limits a compute kernel."""
        return self._kernels[kernel].moves_data

    def _summed(
        self, block: BlockPlan, lengths: Sequence[Length], placed: Placed, inner: Mapping[int, Timeline]
    ) -> Timeline:
        """Where a block's time goes, and its energy."""
        streams, answers, duration, gap = streams_of(block), self._answers(block), placed.length.all, self._kernels.gap
        starts, ends = placed.starts, placed.ends
        nested, slowdown = Breakdown(), Slowdown()
        compute = memory = overhead = energy = 0.0
        compute_slower = communication_slower = 0.0
        occupied: list[Interval] = []  # by compute, loops and branches
        sending: list[tuple[float, float, Group]] = []
        copying: list[Interval] = []
        groups: dict[Group, GroupTime] = {}
        for index in placed.order:
            start, end, estimate = starts[index], ends[index], answers[index]
            stream = streams[index]
            if stream == COMPUTE:
                assert estimate is not None
                occupied.append((start, end))
                time, fixed = estimate.time, estimate.overhead
                if fixed > time:
                    fixed = time
                overhead += fixed + (gap if time else 0.0)  # one that takes no time is none, and has no gap
                energy += estimate.energy
                extra = _longer(end - start, lengths[index].all)
                compute_slower += extra
                if estimate.moves_data:
                    memory += time - fixed + extra
                else:
                    compute += time - fixed + extra
            elif stream == COMMUNICATION:
                kernel = block.steps[index]
                assert isinstance(kernel, Kernel)
                assert kernel.collective is not None
                sending.append((start, end, kernel.collective.group))
                communication_slower += _longer(end - start, lengths[index].all)
            elif stream == COPY:
                assert estimate is not None
                copying.append((start, end))
                energy += estimate.energy
            else:
                body, trips = inner[index], trips_of(block.steps[index])
                occupied.append((start, end))
                nested += body.breakdown * trips
                energy += body.energy * trips
                slowdown += body.slowdown * trips
                for group in body.groups:
                    _add(groups, group.times(trips))
        waiting = covered([(0.0, duration)], occupied)[1]
        copied, waiting = covered(waiting, copying)
        exposed, rest, by_group = exposed_by(waiting, sending)
        for start, end, over in sending:
            _add(groups, GroupTime(group=over, busy=end - start, exposed=0.0))
        for over, seconds in by_group.items():
            _add(groups, GroupTime(group=over, busy=0.0, exposed=seconds))
        own = Breakdown(
            compute=compute, memory=memory + copied, exposed_communication=exposed, overhead=overhead, idle=rest
        )
        return Timeline(
            spans=(),
            duration=duration,
            breakdown=nested + own,
            communication_busy=added_up(group.busy for group in groups.values()),
            energy=energy,
            groups=tuple(groups.values()),
            slowdown=slowdown + Slowdown(compute=compute_slower, communication=communication_slower),
        )


def _longer(seconds: float, alone: float) -> float:
    """How much longer than alone, rounding aside."""
    extra = seconds - alone
    return extra if extra > ROUNDING * seconds else 0.0


def _add(groups: dict[Group, GroupTime], more: GroupTime) -> None:
    found = groups.get(more.group)
    if found is not None:
        more = GroupTime(group=more.group, busy=found.busy + more.busy, exposed=found.exposed + more.exposed)
    groups[more.group] = more


_STREAMS: KeptBeside[tuple[str, ...]] = KeptBeside(of_program=16)  # of each block


def streams_of(block: BlockPlan) -> tuple[str, ...]:
    """The stream of each of a block's steps; nothing for loops and branches, which take all."""
    return _STREAMS.of(
        block, None, lambda: tuple(stream_of(step) if isinstance(step, Kernel) else "" for step in block.steps)
    )


EMPTY = Timeline(spans=(), duration=0.0, breakdown=Breakdown(), communication_busy=0.0, energy=0.0)


def _can_contend(block: BlockPlan) -> bool:
    return (block.concurrent and not block.copies) or any(_can_contend(b) for inner in block.bodies for b in inner)


def trips_of(step: Step) -> int:
    """How often a step runs in a row."""
    return step.trips if isinstance(step, LoopStep) else 1


def costliest(bodies: Iterable[Length]) -> Length:
    """The length of the longest of several branches; no branch takes no time."""
    lengths = list(bodies) or [NOTHING]
    return Length(
        max(length.all for length in lengths),
        max(length.last for length in lengths),
        min(length.free for length in lengths),
        max(length.waited for length in lengths),
    )
