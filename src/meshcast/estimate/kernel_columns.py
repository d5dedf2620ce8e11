"""Kernels of a program at several points of a sweep: columns of their times (`base.column`), at the clocks that caps leave there.

`EstimatedKernels` answer for one point. Where points have different clocks, or devices of different numbers, answers are
arrays with a row for each kernel and a place for each point, worked out by the same operations; nobody makes an object for each
kernel of each point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshcast.base import NumberColumn, UnsupportedError, column_of, raw
from meshcast.estimate.chain import ClockColumns, EstimatedKernels, columns_of_full, slowed_columns
from meshcast.estimate.estimator import Array, Clocks
from meshcast.estimate.power import PowerDraw, PowerLaw, settled_clock
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
    assert full.law is not None
    return _at_shares([full], share.values, full.law, full.gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsByPoint:
    """Kernels at the full clock on devices of different numbers.

    Attributes:
        points: The answers at each point.
    """

    points: tuple[EstimatedKernels, ...] = field(repr=False)

    def __post_init__(self) -> None:
        first = self.points[0]
        keys = list(first.by_key)
        if any(
            each.law != first.law or each.estimators != first.estimators or list(each.by_key) != keys
            for each in self.points
        ):
            raise UnsupportedError("other estimators answer at some points")

    @property
    def law(self) -> PowerLaw | None:
        """How power follows the clock, on all of these devices."""
        return self.points[0].law

    @property
    def estimators(self) -> frozenset[str]:
        """Names of those that answered."""
        return self.points[0].estimators

    @property
    def gap(self) -> Any:
        """Seconds between consecutive kernels of a stream."""
        return column_of([each.gap for each in self.points])

    @property
    def by_key(self) -> _Rows:
        """Every kernel's answers."""
        return self.at_full_clock.by_key

    @property
    def at_full_clock(self) -> KernelColumns:
        """The same as columns."""
        full = [columns_of_full(each) for each in self.points]
        energy = [np.array([e.energy for e in each.by_key.values()]) for each in self.points]
        moves = [np.array([e.moves_data for e in each.by_key.values()]) for each in self.points]
        found = ClockColumns(
            time=_stacked([each.time for each in full]),
            low=_stacked([each.low for each in full]),
            high=_stacked([each.high for each in full]),
            compute_time=_stacked([each.compute_time for each in full]),
            core_time=_stacked([each.core_time for each in full]),
            overhead=_stacked([each.overhead for each in full]),
            energy=_stacked(energy),
            moves_data=_stacked(moves),
        )
        rows = {key: row for row, key in enumerate(self.points[0].by_key)}
        memory = _stacked([each.memory_time for each in full])
        return KernelColumns(
            rows=rows, columns=found, memory_time=memory, gap=self.gap, law=self.law, estimators=self.estimators
        )

    def draw(self, kernels: Sequence[Kernel]) -> DrawByPoint | None:
        """The power that the kernels draw at each point."""
        found = [each.draw(kernels) for each in self.points]
        return DrawByPoint(tuple(each for each in found if each is not None)) if self.law is not None else None

    def at_clock(self, share: Any) -> KernelColumns:
        """The same kernels at shares of the full clock."""
        assert self.law is not None
        return _at_shares(self.points, np.broadcast_to(raw(share), len(self.points)), self.law, self.gap)


def _stacked(columns: Sequence[Any]) -> Any:
    """Columns of kernels, one of each point, as rows of points."""
    return np.ascontiguousarray(np.stack(columns, axis=1))


def _at_shares(full: Sequence[EstimatedKernels], shares: Array, law: PowerLaw, gap: Any) -> KernelColumns:
    columns = [columns_of_full(each) for each in full]
    stacked = type(columns[0])(
        **{name: _stacked([getattr(each, name) for each in columns]) for name in columns[0].__slots__}
    )
    powered = np.array([share**law.frequency_power for share in shares.tolist()])
    return KernelColumns(
        rows={key: row for row, key in enumerate(full[0].by_key)},
        columns=slowed_columns(stacked, shares, powered, law),
        memory_time=stacked.memory_time,
        gap=gap,
        law=law,
        estimators=full[0].estimators,
    )


@dataclass(frozen=True, slots=True)
class DrawByPoint:
    """The power that kernels draw on the devices of several points."""

    points: tuple[PowerDraw, ...]

    def seconds(self, counts: Array, share: Any = None) -> Any:
        """Seconds of kernels that run so often, at shares of the full clock."""
        if share is None:
            return column_of([draw.seconds(counts) for draw in self.points])
        shares = np.broadcast_to(raw(share), len(self.points)).tolist()
        return column_of([draw.seconds(counts, each) for draw, each in zip(self.points, shares, strict=True)])

    def settled(self, counts: Array, devices: Sequence[Device], clocks: Clocks, rest: Any) -> Any:
        """The clock that each point's cap leaves (`settled_clock`)."""
        rests = np.broadcast_to(raw(rest), len(self.points)).tolist()
        return column_of(
            [
                settled_clock(draw, counts, device, clocks, each)
                for draw, device, each in zip(self.points, devices, rests, strict=True)
            ]
        )
