"""Tiled matrix products: the fastest of many tile shapes and K-splits, as an autotuner would find it.

For a tile `bm x bn`, K-steps of 128 bytes and `s` splits of K:
 - `step = max(max(bm * bn * bk / MACs per cycle / share, (bm + bn) * bk * width / 128 bytes per cycle) + c, load /
   stages)` cycles: shared memory feeds the tensor cores with 128 bytes per cycle and holds `stages` steps, whose loads
   are under way at once, so that a step takes at least that part of a load's latency (after Little's law);
 - `compute = (waves * steps / s * step + (waves - 1) * between tiles) / clock`, `waves = ceil(tiles * s / SMs)`;
 - `fetch = tiles * (bm + bn) * K * width / min(L2 bandwidth, busy SMs * bytes per SM)`, where clusters of 2 x 2 blocks
   share their operands (TMA multicast, from Hopper on) and an SM takes at most 64 bytes per cycle;
 - `memory`: operands and result once, and `s` partial results in f32; the last wave's results are stored when nothing
   is left to compute beside them: `store = seconds of the result / waves`;
 - `t = launch + prologue + |compute, fetch, memory - store|_p + store`, and for `s > 1` the launch of a kernel that sums
   the partial results.

Latencies are cycles, so that they follow a device's clock; what differs by generation is in `machine.GENERATIONS`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.estimate.gpu.elementwise import loop
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import Recency

Array = npt.NDArray[np.float64]
STEP_BYTES = 128
SHARED_BYTES_PER_CYCLE = 128
FETCH_BYTES_PER_CYCLE = 64
MOST_STAGES = 8  # that libraries' kernels are compiled for
_SIDES = (8, 16, 32, 64, 96, 128, 160, 192, 256, 320)
_SPLITS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
_LARGEST = 256 * 160  # accumulators of a tile: registers of two warp groups


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledProduct:
    """`batch` products of `m x k` by `k x n`; bytes are what must be moved once, `width` bytes per operand element."""

    batch: float
    m: float
    n: float
    k: float
    width: float
    read: float
    written: float
    peak: float  # FLOP/s of the matrix engine by the data sheet, less what this product cannot use
    split: bool = True
    recency: Recency | None = None


@functools.cache
def _candidates() -> tuple[Array, Array, Array]:
    """Tile rows, columns and K-splits: one side is at least a warp group's 64 rows."""
    grid = [(bm, bn, s) for bm in _SIDES for bn in _SIDES if max(bm, bn) >= 64 and bm * bn <= _LARGEST for s in _SPLITS]
    bm, bn, s = np.array(grid, dtype=np.float64).T
    return bm, bn, s


def product_time(product: TiledProduct, machine: GpuMachine) -> GpuWork:
    """The fastest way to compute a product."""
    bm, bn, splits = _candidates()
    p = machine.parameters
    bk = STEP_BYTES / product.width
    keep = (splits == 1) | (product.k >= splits * bk * 2) if product.split else splits == 1
    keep &= (bm <= max(64, 2 * product.m)) & (bn <= max(64, 2 * product.n))
    bm, bn, splits = bm[keep], bn[keep], splits[keep]

    rows, columns = np.ceil(product.m / bm), np.ceil(product.n / bn)
    tiles = rows * columns * product.batch * splits
    steps = np.ceil(product.k / (bk * splits))
    macs_per_cycle = product.peak / (2 * machine.sms * machine.device.peak_clock_hz)
    generation = machine.generation
    fed = (bm + (bn / 2 if generation.paired else bn)) * STEP_BYTES / SHARED_BYTES_PER_CYCLE
    step = np.maximum(bm * bn * bk / (macs_per_cycle * p.tensor_share), fed) + p.tile_step_cycles
    stages = np.minimum(np.maximum(machine.shared_bytes / ((bm + bn) * STEP_BYTES), 2), MOST_STAGES)
    waiting = np.maximum(step, p.load_cycles / stages)
    waves = np.ceil(tiles / machine.sms)
    # Before warp-specialised kernels with TMA (Hopper), every tile waits for its own pipeline to fill.
    between = p.tile_cycles if generation.clusters else p.tile_cycles + p.load_cycles
    compute = (waves * steps * waiting + (waves - 1) * between) / machine.clock

    shared = 0.5 if generation.clusters else 1.0
    sides = bm * np.where(columns > 1, shared, 1.0) + bn * np.where(rows > 1, shared, 1.0)
    busy = np.minimum(tiles, machine.sms)
    per_sm = FETCH_BYTES_PER_CYCLE * machine.clock
    fetch = tiles * sides * steps * STEP_BYTES / np.minimum(machine.cache_bandwidth, busy * per_sm)

    results = product.batch * product.m * product.n
    once = traffic(product.read, product.written, machine, efficiency=p.gemm_stream, recency=product.recency)
    partial = np.where(splits > 1, splits * results * 4 / machine.cache_bandwidth, 0.0)
    stored = once.seconds * product.written / max(1.0, product.read + product.written) / waves
    moved = once.seconds + partial - stored
    norm = p.overlap
    longest = np.maximum(np.maximum(compute, fetch), moved)
    # A norm lies between the longest of three and 3^(1/p) times as much: few tiles can be the fastest, and only these are timed.
    bandwidth = max(machine.cache_bandwidth, machine.device.memory_bandwidth)  # that no sum of partial results exceeds
    summed = machine.gap + machine.launch + splits * results * 4 / bandwidth
    least = longest + stored + np.where(splits > 1, summed, 0.0)
    most = float((longest * 3 ** (1 / norm) + stored)[splits == 1].min())
    near = np.flatnonzero(~(least > most * (1 + 1e-9)))
    powers = sum((seconds[near] / longest[near]) ** norm for seconds in (compute, fetch, moved))
    joined = longest[near] * powers ** (1 / norm)
    summing = {s: _summing(results, int(s), product.written, machine) for s in set(splits[near].tolist())}
    extra = np.array([summing[s] for s in splits[near].tolist()])
    time = machine.launch + p.prologue_cycles / machine.clock + joined + stored[near] + extra
    fastest = int(np.argmin(time))
    best = int(near[fastest])
    return GpuWork(
        time=float(time[fastest]),
        compute=float(max(compute[best], fetch[best])),
        computing=float((waves * steps * step + (waves - 1) * between)[best]) / machine.clock,
        fixed=machine.launch + p.prologue_cycles / machine.clock + (machine.gap if splits[best] > 1 else 0.0),
        memory=float(moved[best] + stored[best]),
        dram_bytes=once.dram_bytes,
        formula="t = launch + prologue + |compute, fetch, mem + partial - store|_p + store + sum",
        terms=(
            *machine.named(
                ("tile rows", "bm", bm[best], ""),
                ("tile columns", "bn", bn[best], ""),
                ("parts of K", "s", splits[best], ""),
                ("tiles", "n", tiles[best], ""),
                ("waves", "w", waves[best], ""),
                ("steps along K", "k", steps[best], ""),
                ("cycles of a step", "c", waiting[best], ""),
                ("efficiency of the matrix engine", "e", p.tensor_share, ""),
                ("peak", "P", product.peak, "FLOP/s"),
                ("cycles between tiles", "b", between, ""),
                ("clock", "f", machine.clock, "Hz"),
                ("arithmetic", "compute = (w k c + (w - 1) b)/f", compute[best], "s"),
                ("operands from L2", "fetch", fetch[best], "s"),
            ),
            *once.terms,
            *machine.named(
                ("storing the last wave's results", "store", stored[best], "s"),
                ("partial results", "partial", partial[best], "s"),
                ("adding them up", "sum", extra[fastest], "s"),
                ("filling the pipeline", "prologue", p.prologue_cycles / machine.clock, "s"),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", norm, ""),
            ),
        ),
    )


def _summing(results: float, splits: int, written: float, machine: GpuMachine) -> float:
    """Seconds of the kernel that adds partial results, with the gap before it."""
    if splits == 1:
        return 0.0
    return machine.gap + loop(results, splits * results * 4, written, 0.0, machine).time
