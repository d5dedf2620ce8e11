"""Rows picked by index: how many are different, how often the hottest one comes, and which of them L2 still holds.

`count` indices over `rows` rows follow a Zipf law of exponent S (0: uniform): row of rank r comes
`n_r = count * r^-S / sum(r^-S)` times. A program is run again and again with the same indices, so the picks are a cycle:
a row that is in it (with probability `d_r = 1 - exp(-n_r)`) comes `k_r = n_r / d_r` times a cycle. In a cache of `C`
rows that replaces at random, a row survives the `M / k_r` misses until it comes again with `exp(-M / (k_r C))`, so that
`M = sum of d_r k_r (1 - exp(-M / (k_r C)))` misses a cycle: none while all different rows fit, nearly all well beyond.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from meshcast.base import by_point, larger
from meshcast.estimate.estimator import Array
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.memory import hit_share
from meshcast.workload import DTYPE_BITS, Indexed

SECTOR = 32
BINS = 128  # of ranks, each as wide as the ranks before it warrant
ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Picks:
    """`count` indices over `rows` rows by a Zipf law of exponent `skew`, or as often each as `counts` has them, largest first."""

    rows: int
    count: int
    skew: float
    counts: tuple[int, ...] = ()

    @property
    def hottest(self) -> float:
        """How often the most frequent row is expected to come."""
        sizes, picks = _ranks(self)
        return float(picks[0] / sizes[0])

    @property
    def squares(self) -> float:
        """The sum of the squared counts of all rows."""
        sizes, picks = _ranks(self)
        return float(np.sum(picks**2 / sizes + picks))

    @property
    def different(self) -> float:
        """How many different rows are expected among the picks."""
        sizes, picks = _ranks(self)
        return float(np.sum(sizes * -np.expm1(-picks / sizes)))

    def misses(self, capacity: float) -> float:
        """Picks that a cache of `capacity` rows does not hold, when the same picks are made again and again."""
        return _misses(self, capacity)


def picks_of(shape: Indexed) -> Picks:
    """The picks of a gather or scatter; where the program says that indices are unique, none comes twice."""
    rows = max(1, shape.table.elements // max(1, math.prod(shape.slice_shape)))
    if shape.counts:
        return Picks(rows, sum(shape.counts), 0.0, shape.counts)
    return Picks(max(rows, shape.count) if shape.unique else rows, shape.count, 0.0 if shape.unique else shape.skew)


def row_bytes(shape: Indexed) -> tuple[float, float]:
    """(rows of all slices, bytes of one): what is contiguous in memory, in whole sectors."""
    row = (shape.slice_shape[-1] if shape.slice_shape else 1) * DTYPE_BITS[shape.table.dtype] / 8
    rows = float(shape.count * math.prod(shape.slice_shape[:-1]))
    return rows, math.ceil(row / SECTOR) * SECTOR


def missed_bytes(shape: Indexed, machine: GpuMachine) -> float:
    """Bytes of the picked slices that come from HBM."""
    rows, row = row_bytes(shape)
    if machine.cold_cache or not shape.count or not row:
        return min(rows * row, float(shape.table.bytes))
    per_slice = rows / shape.count * row
    capacity = machine.parameters.picked_cache * machine.device.cache_bytes / per_slice
    misses: float = by_point(picks_of(shape).misses, capacity)
    return misses * per_slice


def picked_bytes(shape: Indexed, written: float, machine: GpuMachine) -> float:
    """Bytes that a gather reads: of different rows while they stay in L2 beside its results, else of all that L2 has lost."""
    rows, row = row_bytes(shape)
    touched = min(rows * row, float(shape.table.bytes))
    held = hit_share(touched, written, machine)
    return touched if held else larger(missed_bytes(shape, machine), touched)


@functools.lru_cache(maxsize=1024)
def _ranks(picks: Picks) -> tuple[Array, Array]:
    """(rows, expected picks) of bins of ranks."""
    if picks.counts:
        return np.ones(len(picks.counts)), np.array(picks.counts, dtype=np.float64)
    if not picks.skew:
        return np.array([float(picks.rows)]), np.array([float(picks.count)])
    sizes, weights = zipf_bins(picks.rows, picks.skew)
    return sizes, picks.count * weights / weights.sum()


def zipf_bins(rows: int, skew: float) -> tuple[Array, Array]:
    """(rows, weight) of bins of ranks by a Zipf law; `r^-S` is summed as an integral over the wide ones."""
    edges = np.unique(np.geomspace(1, rows + 1, BINS).round())
    low, high = edges[:-1], edges[1:]
    sizes = high - low
    power = 1 - skew
    bounds = (low - 0.5, high - 0.5)
    inside = np.log(bounds[1] / bounds[0]) if not power else (bounds[1] ** power - bounds[0] ** power) / power
    return sizes, np.where(sizes > 1, inside, low**-skew)


@functools.lru_cache(maxsize=1024)
def _misses(picks: Picks, capacity: float) -> float:
    sizes, counts = _ranks(picks)
    different = sizes * -np.expm1(-counts / sizes)
    if different.sum() <= capacity:
        return 0.0
    again = counts / different
    missed = float(picks.count)  # from above: no misses at all is a solution too
    for _ in range(ROUNDS):
        missed = float(np.sum(different * again * -np.expm1(-missed / (again * capacity))))
    return missed
