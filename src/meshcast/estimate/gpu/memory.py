"""Memory: HBM by the mix of reads and writes, L2 for what stayed there since the last run.

HBM: `bandwidth * (r - w * written / moved)`: turning the bus around costs, so that copies run slower than sums.
L2: the whole footprint hits up to a share of the capacity, nothing above another one, linearly in between: the H200's
two partitions keep copies of each other's lines, and a cyclic sweep evicts what it will need next. A cache in one part
holds more of its capacity (`Device.cache_reach`).
"""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.estimate.gpu.machine import Machine
from meshcast.hardware.device import REACH_OF_TWO_PARTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Seconds to move bytes once, and how many of them came from or went to HBM."""

    seconds: float
    dram_bytes: float


def hit_share(read: float, written: float, machine: Machine) -> float:
    """The share of a kernel's bytes that L2 still holds; a written line takes more room, as it waits to be evicted."""
    if machine.cold_cache:
        return 0.0
    p, device = machine.parameters, machine.device
    capacity = device.cache_reach / REACH_OF_TWO_PARTS  # the shares were fitted on an H200, whose cache has two
    footprint = read + p.cache_written * written
    full, none = p.cache_full * capacity, max(p.cache_none, p.cache_full * 1.01) * capacity
    return min(1.0, max(0.0, (none - footprint) / (none - full)))


def traffic(read: float, written: float, machine: Machine, *, efficiency: float = 1.0) -> Traffic:
    """Bytes read and written once, streaming."""
    moved = read + written
    if not moved:
        return Traffic(seconds=0.0, dram_bytes=0.0)
    p = machine.parameters
    hits = hit_share(read, written, machine)
    dram = machine.device.memory_bandwidth * (p.hbm_read - p.hbm_write_loss * written / moved) * efficiency
    seconds = moved * (hits / machine.cache_bandwidth + (1 - hits) / dram)
    return Traffic(seconds=seconds, dram_bytes=moved * (1 - hits))
