"""What one kernel does with one table, or a shard of it, in numbers that its time follows from.

All are expectations over the distribution of indices (`Picked`). Bags are summed a group at a time by a thread block of
four warps, which waits for the longest of its group; runs of equal indices are summed by a warp each, the long ones in
pieces by a block each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshcast.hardware import Device
from meshcast.jobs.embedding_tables.distribution import Floats, Picked, missed_of_equal

SECTOR = 32  # bytes that L2 moves at least
LINE_ELEMENTS, UNROLLED = 512, 4  # elements of all bags of a block, and rows of a bag that it loads at a time
WARPS = 4  # of a block
LONG, PIECE = 32, 256  # look-ups of a run that a warp sums alone, and of a piece of a longer one
NEAR_SHARE, CACHE_SHARE = 0.86, 0.64  # of an SM's L1 and of L2: what rows are found in again
UNKNOWN_L1 = 128 * 1024  # bytes, where a device's file has none


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUps:
    """One batch of look-ups of one table.

    Attributes:
        picked: How indices fall on its rows.
        dim: Columns.
        element_bytes: Bytes of one.
        look_ups: Indices of the batch.
        bags: Sums that they are gathered into.
        spread: Standard deviation of a bag's indices.
        state_bytes: Optimizer state of a row.
        cached: The share of the rows that lie on the device; None where all do.
        hits: The share of the different rows that are found there; None where that follows from how indices fall.
    """

    picked: Picked
    dim: int
    element_bytes: int
    look_ups: float
    bags: float
    spread: float = 0.0
    state_bytes: float = 4.0
    cached: float | None = None
    hits: float | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dim * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Numbers of one table, or arrays of those of many: formulas take both.

    Attributes:
        look_ups: Indices.
        bags: Sums of them.
        dim: Columns.
        narrow: 1 where elements have two bytes or fewer.
        row_bytes: Bytes of a row, in whole sectors.
        result_bytes: Bytes of a pooled row.
        state_bytes: Optimizer state of a row.
        turns: Times that a block loads rows of each of its bags.
        most_turns: Times that the block with the longest bag does.
        grouped: Bags of a block.
        missed: Look-ups that L2 does not hold.
        missed_near: Look-ups that the SMs' own caches do not hold.
        gradients_missed: The share of gradients read that L2 does not hold.
        different: Different rows.
        hottest: How often the most frequent row comes.
        long_runs: Rows that come more than `LONG` times.
        in_long_runs: Look-ups of these.
        long_turns: Times that blocks load gradients of long runs.
        short_turns: Times that warps load gradients of the other runs.
    """

    look_ups: float
    bags: float
    dim: float
    narrow: float
    row_bytes: float
    result_bytes: float
    state_bytes: float
    turns: float
    most_turns: float
    grouped: float
    missed: float
    missed_near: float
    gradients_missed: float
    different: float
    hottest: float
    long_runs: float
    in_long_runs: float
    long_turns: float
    short_turns: float


def traffic_of(work: LookUps, device: Device) -> Traffic:
    """The numbers of one table on one device."""
    picked, dim, look_ups = work.picked, work.dim, max(work.look_ups, 1e-9)
    row = math.ceil(work.row_bytes / SECTOR) * SECTOR
    near = NEAR_SHARE * (device.core.shared_memory_bytes if device.core is not None else UNKNOWN_L1) / row
    held = CACHE_SHARE * device.cache_bytes / row
    grouped = max(1.0, LINE_ELEMENTS / dim)
    pooling = look_ups / work.bags
    # Of lengths spread evenly around their mean; no bag has more than all look-ups.
    reach = min(math.sqrt(3) * work.spread, max(0.0, look_ups - pooling))
    longest = pooling + reach * (grouped - 1) / (grouped + 1)
    runs, missed, different = _runs(picked, look_ups, dim), picked.misses(look_ups, held), picked.different(look_ups)
    return Traffic(
        look_ups=look_ups,
        bags=work.bags,
        dim=dim,
        narrow=float(work.element_bytes < 4),
        row_bytes=row,
        result_bytes=work.row_bytes,
        state_bytes=math.ceil(work.state_bytes / SECTOR) * SECTOR,
        turns=math.ceil(longest / UNROLLED),
        most_turns=math.ceil((pooling + reach) / UNROLLED),
        grouped=grouped,
        missed=missed,
        missed_near=device.cores * picked.misses(look_ups / device.cores, near),
        gradients_missed=missed_of_equal(max(1, round(work.bags)), look_ups, held) / look_ups,
        different=different,
        hottest=picked.hottest(look_ups),
        **runs,
    )


def _runs(picked: Picked, look_ups: float, dim: int) -> dict[str, float]:
    """Runs of equal indices: how many are long by a normal law around each class's mean, and the loads that they take."""
    mean = look_ups * picked.chance
    touched = picked.touched(look_ups)
    score = (mean - LONG - 0.5) / np.sqrt(np.maximum(mean, 1e-9))
    long = 0.5 * (1 + _erf(score / math.sqrt(2)))
    unit, group = piece_rows(dim), run_rows(dim)
    length = mean * picked.rows / np.maximum(touched, 1e-30)
    padded = np.where(mean < unit, unit, mean + unit / 2)
    loads = np.maximum(1.0, length / group + 0.5 * ((length > 1.5) & (group < 2 * length)))
    return {
        "long_runs": float(np.sum(picked.rows * long)),
        "in_long_runs": float(np.sum(picked.rows * mean * long)),
        "long_turns": float(np.sum(picked.rows * long * padded)) / unit,
        "short_turns": float(np.sum(touched * (1 - long) * loads)),
    }


def piece_rows(dim: Any) -> Any:
    """Gradients that a block loads at a time of a long run."""
    return np.maximum(8.0, 4 * LINE_ELEMENTS / dim)


def run_rows(dim: Any) -> Any:
    """Gradients that a warp loads at a time of a run."""
    return np.maximum(4.0, LINE_ELEMENTS / dim)


def _erf(values: Floats) -> Floats:
    """The error function of each; a list is made several times as fast as `np.vectorize` makes it."""
    return np.array([math.erf(each) for each in values.tolist()])
