"""One rank's step at many points of a sweep at once, whose times are columns (`base.column`).

`engine.RankRun` simulates one point. Here every number is an array with a place for each point, and each is worked out by the
same operations in the same order, so that points are what they are alone, to the last bit
(`tests/simulate/retiming/test_points_run.py`). In which order events come is each point's own (`points_events`), and so is in
which of a block's orders its steps are issued. What is the same at all points is told as one number: where nothing that a step
reads differs, it is a step of one point, and kept as that (`jobs.program.known_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside, PartedError, column_of, joined, number_of, of_points, raw
from meshcast.estimate import EstimatedKernels, KernelAtPoints, KernelColumns, KernelsByPoint
from meshcast.lower import CostKey, Kernel
from meshcast.simulate.block_times import Order, Placed
from meshcast.simulate.contention import SpeedShares, Together
from meshcast.simulate.engine import EMPTY, ROUNDING, RankRun, costliest, streams_of, trips_of
from meshcast.simulate.executed import Executed
from meshcast.simulate.exposure import added_up
from meshcast.simulate.issue_order import BlockPlan
from meshcast.simulate.lengths import Length
from meshcast.simulate.network import KernelNetwork
from meshcast.simulate.retiming.points_events import EventsAtPoints, Floats, Places
from meshcast.simulate.retiming.points_exposure import exposed_at_points
from meshcast.simulate.retiming.points_streams import stream_seconds_at_points, streams_at_points
from meshcast.simulate.retiming.points_sums import (
    GroupsAtPoints,
    chosen_rows,
    group_of,
    in_both,
    last_end,
    last_there,
    sum_in_order,
)
from meshcast.simulate.timeline import COMMUNICATION, COMPUTE, Breakdown, Slowdown, Timeline

Kernels = EstimatedKernels | KernelColumns | KernelsByPoint
MOST_NUMBERS = 1 << 21  # of a block, steps times points: beyond that points go in two halves


_Taken = dict[int, Order]  # the order of each block, by its identity


class _Lengths(NamedTuple):
    """Of a block's steps, by step and point (`lengths.Length`)."""

    all: Floats
    last: Floats
    free: Floats
    waited: Floats


class _StreamSteps(NamedTuple):
    """Which of a block's steps compute, which are collectives, and which are loops and branches."""

    computing: tuple[int, ...]
    keys: tuple[CostKey, ...]  # of the kernels that compute
    sending: tuple[int, ...]
    inner: tuple[int, ...]


_STREAMS: KeptBeside[_StreamSteps] = KeptBeside(of_program=16)


def _streams(block: BlockPlan) -> _StreamSteps:
    def found() -> _StreamSteps:
        streams = streams_of(block)
        computing = tuple(index for index, stream in enumerate(streams) if stream == COMPUTE)
        keys = tuple(step.cost_key for index in computing if isinstance(step := block.steps[index], Kernel))
        sending = tuple(index for index, stream in enumerate(streams) if stream == COMMUNICATION)
        return _StreamSteps(
            computing, keys, sending, tuple(index for index, stream in enumerate(streams) if not stream)
        )

    return _STREAMS.of(block, None, found)


class PointsRun(RankRun):
    """Blocks of one rank's program at many points."""

    def __init__(
        self, kernels: Kernels, network: KernelNetwork, rates: SpeedShares | None, host_rate: float, points: int
    ) -> None:
        super().__init__(kernels, network, rates, host_rate)  # type: ignore[arg-type]  # by_key is not asked here
        alike = KernelsByPoint.alike(kernels) if isinstance(kernels, EstimatedKernels) else kernels
        self._columns = alike if isinstance(alike, KernelColumns) else alike.at_full_clock
        self._points = points
        self._gap = raw(self._columns.gap)
        self._lengths: dict[int, _Lengths] = {}  # by the identity of a block, as those of one point
        self._orders: dict[int, list[tuple[Order, Places | None]]] = {}  # the same: which points take which order

    def _timed(self, block: BlockPlan) -> tuple[list[Length], Placed]:
        found = self._blocks.get(id(block))
        if found is None:
            if block.copies:
                raise PartedError(np.zeros(self._points, dtype=bool))  # each point by itself
            if len(block.steps) * self._points > MOST_NUMBERS and self._points > 1:
                raise PartedError(np.arange(self._points) < self._points // 2)
            lengths = self._lengths[id(block)] = self._alone_of(block)
            with np.errstate(all="ignore"):
                placed = self._placed(block, lengths)
            found = self._blocks[id(block)] = [], placed
        return found

    def _alone_of(self, block: BlockPlan) -> _Lengths:
        """How long each step takes alone."""
        streams, points = _streams(block), self._points
        shape = len(block.steps), points
        found = _Lengths(*(np.zeros(shape) for _ in range(4)))
        if streams.computing:
            rows = self._rows(block)
            seconds = self._columns.columns.time[rows]
            everything = seconds + np.where(seconds != 0.0, self._gap, 0.0)
            places = list(streams.computing)
            found.all[places], found.last[places] = everything, seconds
            found.free[places] = np.maximum(0.0, everything - self._columns.memory_time[rows])
        for index in streams.sending:
            kernel = block.steps[index]
            assert isinstance(kernel, Kernel)
            found.all[index] = found.last[index] = raw(self._network.seconds(kernel))
        for index in streams.inner:
            step, bodies = block.steps[index], block.bodies[index]
            length = costliest([self.length(body) for body in bodies]).at_least(self.copying(step))
            length = length.times(trips_of(step))
            for array, number in zip(found, (length.all, length.last, length.free, length.waited), strict=True):
                array[index] = raw(number)
        return found

    def _rows(self, block: BlockPlan) -> list[int]:
        """Where the columns have each of a block's compute kernels."""
        rows = self._columns.rows
        return [rows[key] for key in _streams(block).keys]

    def _placed(self, block: BlockPlan, lengths: _Lengths) -> Placed:
        """`block_times.place` at all points; of the orders that they have, that of the first is told."""
        if not block.concurrent:
            self._orders[id(block)] = [(block.orders[0], None)]
            return self._in_sequence(block, lengths)
        if self.rates is not None:
            taken = np.zeros(self._points, dtype=np.int64)
            if len(block.orders) > 1:
                taken = np.argmin(
                    np.stack([stream_seconds_at_points(block, order, lengths.all) for order in block.orders]), axis=0
                )
            return self._by_events(block, self._in_orders(block, taken), lengths)
        runs = [streams_at_points(block, order, lengths.all, lengths.last, lengths.free) for order in block.orders]
        taken = np.argmin(np.stack([run.everything for run in runs]), axis=0)
        orders = self._in_orders(block, taken)
        starts, ends, everything, unused = (
            chosen_rows([getattr(run, name) for run in runs], taken)
            for name in ("starts", "ends", "everything", "unused")
        )
        last = np.minimum.reduce([run.last for run in runs])
        waited = self._waited(block, orders, lengths)
        length = Length(*map(column_of, (everything, last, unused, waited)))
        return Placed(length, orders[0][0], starts, ends, orders[0][0])  # type: ignore[arg-type]  # arrays of rows

    def _in_orders(self, block: BlockPlan, taken: npt.NDArray[np.int64]) -> list[tuple[Order, Places | None]]:
        """The orders that points take, with the points that take each; None: all."""
        numbers = list(dict.fromkeys(taken.tolist()))
        self._orders[id(block)] = found = [
            (block.orders[number], np.flatnonzero(taken == number) if len(numbers) > 1 else None) for number in numbers
        ]
        return found

    def _in_sequence(self, block: BlockPlan, lengths: _Lengths) -> Placed:
        """A block with one stream: one step after the other."""
        nothing = np.zeros((1, self._points))
        ends = np.add.accumulate(lengths.all) if len(lengths.all) else nothing[:0]
        starts = np.concatenate((nothing, ends[:-1])) if len(ends) else ends
        now = ends[-1] if len(ends) else nothing[0]
        last = last_there(lengths.all != 0.0, starts + lengths.last)
        free, waited = sum_in_order(lengths.free, self._points), sum_in_order(lengths.waited, self._points)
        length = Length(*map(column_of, (now, last, free, waited)))
        return Placed(length, block.orders[0], starts, ends, block.orders[0])  # type: ignore[arg-type]  # arrays of rows

    def _by_events(self, block: BlockPlan, orders: Sequence[tuple[Order, Places | None]], lengths: _Lengths) -> Placed:
        """`alone.events_alone`: streams that slow each other."""
        events = EventsAtPoints(block, lengths.all, _Beside(self, block, lengths).speeds)
        for order, places in orders:
            events.run(order, places)
        waited = self._waited(block, orders, lengths)
        last = last_end(lengths.all, events.ends - (lengths.all - lengths.last))
        computing = np.array([not lane for lane in block.lanes])[:, None]
        busy = sum_in_order(np.where(computing, lengths.all - lengths.free, 0.0), self._points)
        now = events.now
        length = Length(*map(column_of, (now, last, np.maximum(0.0, now - busy), waited)))
        return Placed(length, orders[0][0], events.starts, events.ends, orders[0][0])  # type: ignore[arg-type]  # arrays of rows

    def _waited(self, block: BlockPlan, orders: Sequence[tuple[Order, Places | None]], lengths: _Lengths) -> Floats:
        """How long loops and branches wait for ranks that come later."""
        inner, found = set(_streams(block).inner), np.zeros(self._points)
        for order, places in orders:
            here = slice(None) if places is None else places
            found[here] = sum_in_order(lengths.waited[[each for each in order if each in inner]], self._points)[here]
        return found

    def executed(self, plan: BlockPlan) -> Executed:
        """Every kernel of a plan with how often it runs, in the order of the first point: other orders have the same ones.

        Raises:
            PartedError: Sums over them are others in another order.
        """
        (first, places), *others = self.executed_by_point(plan)
        if others and places is not None and not first.sums_exactly:
            raise PartedError(np.isin(np.arange(self._points), places))
        return first

    def executed_by_point(self, plan: BlockPlan) -> list[tuple[Executed, Places | None]]:
        """What runs, for each order in which some points have it, with these points; None: all."""
        self.length(plan)
        found: list[tuple[_Taken, Places | None]] = [({}, None)]
        for block in self._within(plan):
            orders = self._orders[id(block)]
            found = [
                ({**taken, id(block): order}, both)
                for taken, places in found
                for order, here in orders
                if (both := in_both(places, here)) is None or len(both)
            ]
        return [(self._executed_in(plan, taken), places) for taken, places in found]

    def _within(self, plan: BlockPlan) -> list[BlockPlan]:
        """A block and those in it that run."""
        found = [plan]
        for block in found:
            found += [body for bodies in block.bodies if (body := self._longest(bodies)) is not None]
        return found

    def _executed_in(self, plan: BlockPlan, taken: _Taken) -> Executed:
        return self.executed_in(plan, lambda block: taken[id(block)])

    def at_step(self, block: BlockPlan, index: int) -> KernelAtPoints:
        """A compute kernel's times as columns."""
        kernel = block.steps[index]
        assert isinstance(kernel, Kernel)
        row, found = self._columns.rows[kernel.cost_key], self._columns.columns

        def number(array: Any) -> Any:
            return number_of(array[row]) if array.shape[1] > 1 else float(array[row, 0])

        wanted = (found.time, found.compute_time, self._columns.memory_time, found.core_time)
        time, computing, memory, cores = map(number, wanted)
        return KernelAtPoints(time, computing, memory, cores, 0.0, 0.0, False)

    def timeline(self, block: BlockPlan, *, spans: bool = True, paths: bool = True) -> tuple[Timeline, Length]:
        """A block with all that runs in it, but for its spans and its critical path."""
        assert not spans
        assert not paths
        placed = self._timed(block)[1]
        inner: dict[int, Timeline] = {}
        for index in _streams(block).inner:
            body = self._longest(block.bodies[index])
            longest = EMPTY if body is None else self.timeline(body, spans=False, paths=False)[0]
            inner[index] = longest.lasting(self.copying(block.steps[index]), "waiting for the host's memory")
        orders = self._orders[id(block)]
        with np.errstate(all="ignore"):
            if len(orders) == 1:
                return self._summed_up(block, placed, orders[0][0], inner), placed.length
            found = [
                self._summed_up(block, placed, order, {index: of_points(each, places) for index, each in inner.items()}, places)
                for order, places in orders
                if places is not None
            ]  # fmt: skip
        first = {group.group: number for number, group in enumerate(found[0].groups)}
        alike = [
            replace(each, groups=tuple(sorted(each.groups, key=lambda group: first[group.group]))) for each in found
        ]
        return joined(alike, [places for _, places in orders if places is not None]), placed.length

    def _summed_up(
        self,
        block: BlockPlan,
        placed: Placed,
        order: Order,
        inner: Mapping[int, Timeline],
        places: Places | None = None,
    ) -> Timeline:
        """Where a block's time goes, and its energy (`RankRun._summed`), at points that have one order."""
        streams = _streams(block)

        def here(rows: Any) -> Any:
            return rows if places is None or rows.shape[-1] == 1 else rows[..., places]

        starts, ends, alone = here(placed.starts), here(placed.ends), here(self._lengths[id(block)].all)
        points = starts.shape[1]
        lasting = ends - starts
        extra = lasting - alone
        extra = np.where(extra > ROUNDING * lasting, extra, 0.0)
        steps = np.array(order, dtype=np.int64)
        # Sums go in the order of the block's steps; a step that adds nothing to one adds 0 there, which changes no bit.
        compute, memory, overhead, energy, slower = (np.zeros((len(steps), points)) for _ in range(5))
        if streams.computing:
            rows, computing, columns = self._rows(block), list(streams.computing), self._columns.columns
            time = here(columns.time[rows])
            fixed = np.minimum(here(columns.overhead[rows]), time)
            gap = here(self._gap) if isinstance(self._gap, np.ndarray) else self._gap
            overhead[computing] = fixed + np.where(time != 0.0, gap, 0.0)
            energy[computing] = here(columns.energy[rows])
            slower[computing] = extra[computing]
            used, moves = time - fixed + extra[computing], here(columns.moves_data[rows])
            memory[computing], compute[computing] = np.where(moves, used, 0.0), np.where(moves, 0.0, used)
        nested, slowdown, groups = Breakdown(), Slowdown(), GroupsAtPoints()
        for index in order:
            if index in inner:
                body, trips = inner[index], trips_of(block.steps[index])
                nested += body.breakdown * trips
                energy[index] = raw(body.energy * trips)
                slowdown += body.slowdown * trips
                for group in body.groups:
                    groups.add(group.group, raw(trips * group.busy), raw(trips * group.exposed))
        sent = set(streams.sending)
        sending, occupying = [i for i in order if i in sent], [i for i in order if i not in sent]
        over = [group_of(block, index) for index in sending]
        duration = np.broadcast_to(here(np.broadcast_to(raw(placed.length.all), self._points)), points)
        found = exposed_at_points(duration, starts[occupying], ends[occupying], starts[sending], ends[sending], over)
        for index, among in zip(sending, over, strict=True):
            groups.add(among, lasting[index], 0.0)
        for among, exposed in found.by_group.items():
            groups.add(among, 0.0, exposed)
        own = Breakdown(
            compute=column_of(sum_in_order(compute[steps], points)),
            memory=column_of(sum_in_order(memory[steps], points)),
            exposed_communication=column_of(found.exposed),
            overhead=column_of(sum_in_order(overhead[steps], points)),
            idle=column_of(found.idle),
        )
        taken = Slowdown(
            compute=column_of(sum_in_order(slower[steps], points)),
            communication=column_of(sum_in_order(extra[sending], points)),
        )
        listed = groups.told()
        return Timeline(
            spans=(),
            duration=column_of(duration),
            breakdown=nested + own,
            communication_busy=added_up(group.busy for group in listed),
            energy=column_of(sum_in_order(energy[steps], points)),
            groups=listed,
            slowdown=slowdown + taken,
        )


class _Beside:
    """How fast a block's kernels and collectives are beside each other."""

    def __init__(self, rank: PointsRun, block: BlockPlan, lengths: _Lengths) -> None:
        self._rank, self._block, self._lengths = rank, block, lengths
        self._together: dict[tuple[int, ...], Together] = {}

    def speeds(self, computing: int | None, sending: tuple[int, ...]) -> tuple[Any, list[Any]]:
        """The speed of a compute step with the gap behind it, and those of collectives beside it (`_EventsAlone._set_speeds`)."""
        block, rates = self._block, self._rank.rates
        assert rates is not None
        together = self._together.get(sending)
        if together is None:
            active: Any = [block.steps[index] for index in sending]
            lasting: Any = [number_of(self._lengths.all[index]) for index in sending]
            together = self._together[sending] = rates.together(active, lasting)
        estimate: Any = None if computing is None else self._rank.at_step(block, computing)
        speed, shares = rates.beside(estimate, together)
        own = raw(speed)
        if computing is not None:
            everything, last = self._lengths.all[computing], self._lengths.last[computing]
            slowed = everything + last / own - last
            own = np.where(slowed != 0.0, everything / slowed, 1.0)
        return own, [raw(share) for share in shares]
