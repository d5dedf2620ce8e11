"""Memory: HBM by the mix of reads and writes, L2 for what stayed there since the last run.

HBM: `bandwidth * (r - w * written / moved)`: turning the bus around costs, so that copies run slower than sums.
L2: what a kernel touches hits as long as its footprint and what was moved since the last use of those bytes stay within a
share of the capacity, not at all above another one, linearly in between: the H200's two partitions keep copies of each
other's lines, and a cyclic sweep evicts what it will need next. A cache in one part holds more of its capacity
(`Device.cache_reach`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from meshcast.base import NumberColumn, larger, made_quickly, smaller
from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.lower import Recency


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTraffic:
    """Seconds to move bytes once, and how many of them came from or went to HBM."""

    seconds: float
    dram_bytes: float
    terms: tuple[Term, ...] = ()


def hit_share(read: float, written: float, machine: GpuMachine, recency: Recency | None = None) -> float:
    """The share of a kernel's bytes that L2 still holds; a written line takes more room, as it waits to be evicted.

    Args:
        read: Bytes.
        written: Bytes.
        machine: The GPU.
        recency: What was moved since the last use of those bytes; nothing by default.
    """
    if machine.cold_cache:
        return 0.0
    return _held_share(read, written, recency, machine.cache_window, machine.parameters.cache_written)


@functools.lru_cache(maxsize=16384)  # devices that differ in rates alone have the same
def _held_share(
    read: float, written: float, recency: Recency | None, window: tuple[float, float], dirty: float
) -> float:
    full, none = window
    free, slope = none - (read + dirty * written), none - full

    def held(age: float) -> float:
        return smaller(1.0, larger(0.0, (free - age) / slope))

    warm = held(0.0)
    if recency is None or not (read + written) or (not isinstance(warm, NumberColumn) and not warm):
        return warm
    known, hits = 0, 0.0
    for age, size in recency.reads:
        known += size
        hits += size * held(age)
    reads = hits / known if known else warm
    return (read * reads + written * held(recency.written)) / (read + written)


def traffic(
    read: float, written: float, machine: GpuMachine, *, efficiency: float = 1.0, recency: Recency | None = None
) -> MemoryTraffic:
    """Bytes read and written once, streaming."""
    moved = read + written
    if not moved:
        return MemoryTraffic(seconds=0.0, dram_bytes=0.0)
    p = machine.parameters
    hits = hit_share(read, written, machine, recency)
    dram = machine.device.memory_bandwidth * (p.hbm_read - p.hbm_write_loss * written / moved) * efficiency
    seconds = moved * (hits / machine.cache_bandwidth + (1 - hits) / dram)
    if not machine.explaining:
        return MemoryTraffic(seconds=seconds, dram_bytes=moved * (1 - hits))
    terms = machine.named(
        ("bytes of HBM", "B", moved * (1 - hits), "B"),
        ("HBM bandwidth", "W", dram, "B/s"),
        ("bytes of L2", "B2", moved * hits, "B"),
        ("L2 bandwidth", "W2", machine.cache_bandwidth, "B/s"),
        ("memory", "mem = B/W + B2/W2", seconds, "s"),
    )
    return MemoryTraffic(seconds=seconds, dram_bytes=moved * (1 - hits), terms=terms)
