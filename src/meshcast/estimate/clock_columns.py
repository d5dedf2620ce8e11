"""Estimates of kernels as columns: at the full clock, and at shares of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshcast.estimate.estimator import Array
from meshcast.estimate.power import PowerLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class FullColumns:
    """Estimates at the full clock as columns."""

    time: Array
    low: Array
    high: Array
    compute_time: Array
    memory_time: Array
    core_time: Array
    overhead: Array
    clocked: Array
    dynamic_energy: Array
    static_energy: Array

    def row(self, number: int) -> FullColumns:
        """One kernel's, of columns with a row for each."""
        return FullColumns(**{name: getattr(self, name)[number] for name in self.__slots__})

    @classmethod
    def stacked(cls, rows: Sequence[FullColumns], axis: int = 0) -> FullColumns:
        """Columns of kernels made of theirs, a row for each; along the last axis those of points, a place for each."""
        return cls(
            **{
                name: np.ascontiguousarray(np.stack([getattr(each, name) for each in rows], axis=axis))
                for name in cls.__slots__
            }
        )


class ClockColumns(NamedTuple):
    """What a clock changes of estimates, in the order of `_clocked`."""

    time: Array
    low: Array
    high: Array
    compute_time: Array
    core_time: Array
    overhead: Array
    energy: Array
    moves_data: npt.NDArray[np.bool_]


def slowed_columns(full: FullColumns, share: float | Array, powered: float | Array, law: PowerLaw) -> ClockColumns:
    """Estimates at a share of the full clock, or at those of several points, which are the columns' last dimension then.

    Args:
        full: At the full clock.
        share: Of it.
        powered: The share to the power by which energies follow it.
        law: How power follows the clock.
    """
    computed, memory = full.compute_time, full.memory_time
    slower = law.slowdown(full.clocked, share)
    time = full.time * slower
    cores = np.minimum(time, np.maximum(computed, full.core_time) / share)
    computing = np.minimum(time, computed / share)
    return ClockColumns(
        time,
        full.low * slower,
        full.high * slower,
        computing,
        cores,
        np.minimum(full.overhead * slower, np.maximum(0.0, time - np.maximum(cores, memory))),
        law.joules_of(full.dynamic_energy, full.static_energy, time, powered),
        moving_data(computing, memory, cores),
    )


def moving_data(compute: Array, memory: Array, cores: Array) -> npt.NDArray[np.bool_]:
    """Which kernels move data rather than compute, as `limiting` says of one."""
    moves: npt.NDArray[np.bool_] = compute < np.maximum(memory, np.where(cores > compute, cores, 0.0))
    return moves
