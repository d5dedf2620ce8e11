"""Kernels of a program at several points of a sweep: columns of their times (`base.column`), at the clocks that caps leave there.

`EstimatedKernels` answer for one point. Where points have different clocks, or devices of different numbers, answers are
arrays with a row for each kernel and a place for each point, worked out by the same operations; nobody makes an object for each
kernel of each point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from meshcast.base import KeptBeside, NumberColumn, UnsupportedError, column_of, raw
from meshcast.estimate.chain import EstimatedKernels, columns_of_full
from meshcast.estimate.clock_columns import ClockColumns, FullColumns, slowed_columns
from meshcast.estimate.estimator import Array, Clocks
from meshcast.estimate.power import LOWEST_CLOCK, PowerDraw, PowerLaw, fitting_looks, power_limit
from meshcast.hardware import Device
from meshcast.lower import CostKey, Kernel


@dataclass(frozen=True, slots=True)
class KernelAtPoints:
    """One kernel at all points: arrays, or numbers where all points have the same."""

    time: Any
    compute_time: Any
    memory_time: Any
    core_time: Any
    overhead: Any
    energy: Any
    moves_data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelColumns:
    """Answers by cost key, for several points.

    Attributes:
        rows: The place of each cost key in the columns.
        columns: With a row for each kernel, and a place for each point.
        memory_time: The seconds of memory traffic, which no clock changes.
        gap: Seconds between consecutive kernels of a stream.
        law: How power follows the clock.
        estimators: Names of those that answered.
    """

    rows: Mapping[CostKey, int] = field(repr=False)
    columns: ClockColumns = field(repr=False)
    memory_time: Array = field(repr=False)
    gap: Any
    law: PowerLaw | None
    estimators: frozenset[str]

    @property
    def by_key(self) -> _Rows:
        """Every kernel's answers."""
        return _Rows(self)


class _Rows:
    """Rows of columns, each made when it is asked for."""

    def __init__(self, kernels: KernelColumns) -> None:
        self._kernels = kernels

    def __getitem__(self, key: CostKey) -> KernelAtPoints:
        row, found = self._kernels.rows[key], self._kernels.columns
        return KernelAtPoints(
            _row(found.time, row),
            _row(found.compute_time, row),
            _row(self._kernels.memory_time, row),
            _row(found.core_time, row),
            _row(found.overhead, row),
            _row(found.energy, row),
            _row(found.moves_data, row),
        )


def _row(columns: Any, row: int) -> Any:
    """A kernel's row; one number where all points have the same."""
    return columns[row] if columns.shape[1] > 1 else columns[row, 0]


def at_clocks(full: EstimatedKernels, share: NumberColumn) -> KernelColumns:
    """Kernels of one device at the clocks of several points."""
    return KernelsByPoint.alike(full).at_clock(share)


class PointAnswers(NamedTuple):
    """One kernel's answers at the full clock, an array with a place for each point of each."""

    full: FullColumns
    energy: Array
    moves_data: Any


@dataclass(frozen=True, kw_only=True)
class KernelsByPoint:
    """Kernels at the full clock on devices of different numbers.

    Attributes:
        rows: The place of each cost key in the columns.
        full: With a row for each kernel, and a place for each point; one place where all points have the same.
        energy: Joules, likewise.
        moves_data: Whether a kernel moves data rather than computes.
        gap: Seconds between consecutive kernels of a stream.
        law: How power follows the clock, on all of these devices.
        estimators: Names of those that answered.
    """

    rows: Mapping[CostKey, int] = field(repr=False)
    full: FullColumns = field(repr=False)
    energy: Array = field(repr=False)
    moves_data: Any = field(repr=False)
    gap: Any
    law: PowerLaw | None
    estimators: frozenset[str]

    @classmethod
    def of_points(cls, points: Sequence[EstimatedKernels]) -> KernelsByPoint:
        """Answers that were given for each point by itself.

        Raises:
            UnsupportedError: Somebody else has answered at some of them.
        """
        first = points[0]
        keys = list(first.by_key)
        if any(
            each.law != first.law or each.estimators != first.estimators or list(each.by_key) != keys for each in points
        ):
            raise UnsupportedError("other estimators answer at some points")
        columns = [columns_of_full(each) for each in points]
        return cls(
            rows={key: row for row, key in enumerate(keys)},
            full=FullColumns.stacked(columns, axis=1),
            energy=_stacked([np.array([e.energy for e in each.by_key.values()]) for each in points]),
            moves_data=_stacked([np.array([e.moves_data for e in each.by_key.values()]) for each in points]),
            gap=column_of([each.gap for each in points]),
            law=first.law,
            estimators=first.estimators,
        )

    @classmethod
    def of_rows(cls, answers: Mapping[CostKey, PointAnswers], gap: Any, law: PowerLaw, name: str) -> KernelsByPoint:
        """Answers that one estimator has given for all points at once."""
        rows = list(answers.values())
        return cls(
            rows={key: row for row, key in enumerate(answers)},
            full=FullColumns.stacked([row.full for row in rows]),
            energy=np.stack([row.energy for row in rows]),
            moves_data=np.stack([row.moves_data for row in rows]),
            gap=gap,
            law=law,
            estimators=frozenset({name}),
        )

    @classmethod
    def alike(cls, kernels: EstimatedKernels) -> KernelsByPoint:
        """The answers of one device, which all points have."""
        return _ALIKE.of(kernels, None, lambda: cls.of_points([kernels]))

    @property
    def by_key(self) -> _Rows:
        """Every kernel's answers."""
        return self.at_full_clock.by_key

    @cached_property
    def at_full_clock(self) -> KernelColumns:
        """The same as columns."""
        return self._columns(self._whole)

    @cached_property
    def _whole(self) -> ClockColumns:
        full = self.full
        return ClockColumns(
            full.time, full.low, full.high, full.compute_time, full.core_time, full.overhead, self.energy, self.moves_data
        )  # fmt: skip

    def _columns(self, found: ClockColumns) -> KernelColumns:
        return KernelColumns(
            rows=self.rows, columns=found, memory_time=self.full.memory_time, gap=self.gap, law=self.law,
            estimators=self.estimators,
        )  # fmt: skip

    def draw(self, kernels: Sequence[Kernel]) -> DrawByPoint | None:
        """The power that the kernels draw at each point."""
        if self.law is None:
            return None
        places = [self.rows[kernel.cost_key] for kernel in kernels]
        full = self.full
        wanted = (full.time, full.clocked, full.dynamic_energy, full.static_energy)
        time, clocked, dynamic, static = (np.ascontiguousarray(each[places].T) for each in wanted)
        return DrawByPoint(time, clocked, dynamic, static, self.law)

    def at_clock(self, share: Any) -> KernelColumns:
        """The same kernels at shares of the full clock; at the full one they are what they are."""
        assert self.law is not None
        shares = np.atleast_1d(raw(share))
        powered = np.array([each**self.law.frequency_power for each in shares.tolist()])
        found = slowed_columns(self.full, shares, powered, self.law)
        if (whole := shares == 1.0).any():
            found = ClockColumns(*(np.where(whole, one, other) for one, other in zip(self._whole, found, strict=True)))
        return self._columns(found)


_ALIKE: KeptBeside[KernelsByPoint] = KeptBeside()


def _stacked(columns: Sequence[Any]) -> Any:
    """Columns of kernels, one of each point, as rows of points."""
    return np.ascontiguousarray(np.stack(columns, axis=1))


@dataclass(frozen=True, slots=True)
class DrawByPoint:
    """The power that kernels draw at several points: a row for each point, or one where it is the same at all of them."""

    time: Array
    clocked: Array
    dynamic: Array
    static: Array
    law: PowerLaw

    @classmethod
    def alike(cls, draw: PowerDraw) -> DrawByPoint:
        """What all points draw."""
        return cls(draw.time[None], draw.clocked[None], draw.dynamic[None], draw.static[None], draw.law)

    @classmethod
    def in_orders(cls, draws: Sequence[DrawByPoint], places: Sequence[Any]) -> DrawByPoint:
        """What points draw that list the same kernels in different orders, each order with the points that have it."""
        points = sum(map(len, places))

        def filled(name: str) -> Array:
            found = np.empty((points, draws[0].time.shape[1]))
            for draw, here in zip(draws, places, strict=True):
                rows = getattr(draw, name)
                found[here] = rows if len(rows) == 1 else rows[here]
            return found

        return cls(filled("time"), filled("clocked"), filled("dynamic"), filled("static"), draws[0].law)

    def seconds(self, counts: Array, share: Any = None) -> Any:
        """Seconds of kernels that run so often, at shares of the full clock.

        Args:
            counts: How often each runs; with a row for each point where their kernels are listed in different orders.
            share: Of the full clock; None for that.
        """
        if share is None:
            return column_of(_dots(counts, self.time))
        return column_of(_dots(counts, self._times(slice(None), np.atleast_1d(raw(share)))))

    def _times(self, places: Any, shares: Array) -> Array:
        time, clocked = (each if len(each) == 1 else each[places] for each in (self.time, self.clocked))
        found: Array = time * self.law.slowdown(clocked, shares[:, None])
        return found

    def _law_at(self, places: Sequence[int]) -> PowerLaw:
        """How power follows the clock at some points, for arrays with a row for each of them."""
        least = self.law.least_watts
        if not isinstance(least, NumberColumn):
            return self.law
        return replace(self.law, least_watts=NumberColumn(least.values[places][:, None]))

    def settled(
        self, counts: Array, devices: Sequence[Device], clocks: Clocks, rests: Sequence[float], places: Sequence[int]
    ) -> list[float]:
        """The clock that the cap leaves at some points (`settled_clock`): each looks where it would look alone, all at once.

        Args:
            counts: How often each kernel runs; with a row for each of all points where their orders differ.
            devices: Of all points, or the one that all have.
            clocks: `sustained` or `burst`.
            rests: Seconds of these points in which no kernel runs.
            places: Which points these are.
        """
        limits = [power_limit(self.law, device, clocks) for device in devices]
        of = {place: limits[place] if len(limits) > 1 else limits[0] for place in places}
        rest = dict(zip(places, rests, strict=True))
        looks = {place: fitting_looks(LOWEST_CLOCK, 1.0) for place in places}
        asked = {place: next(each) for place, each in looks.items()}
        found: dict[int, float] = {}
        while asked:
            some = list(asked)
            shares = np.array([asked[place] for place in some])
            times = self._times(some, shares)
            powered = np.array([each**self.law.frequency_power for each in shares.tolist()])[:, None]
            dynamic, static = (each if len(each) == 1 else each[some] for each in (self.dynamic, self.static))
            often = counts if counts.ndim == 1 else counts[some]
            joules = _dots(often, self._law_at(some).joules_of(dynamic, static, times, powered))
            for place, drawn, lasting in zip(some, joules, _dots(often, times), strict=True):
                limit, window = of[place]
                try:
                    asked[place] = looks[place].send((drawn, limit * max(lasting + rest[place], window)))
                except StopIteration as ended:
                    found[place] = ended.value
                    del asked[place]
        return [found[place] for place in places]


def _dots(counts: Array, rows: Array) -> list[float]:
    """The product of counts with each row: one by one, as a product with all of them would add up in another order."""
    if counts.ndim == 1:
        return [float(counts @ row) for row in rows]
    return [float(one @ row) for one, row in zip(counts, rows, strict=True)]
