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
from meshcast.estimate.gpu.machine import GpuArchitecture, GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.parameters import GpuParameters
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tilings:
    """What each tile shape and K-split that a product may have takes of the cores and of L2, before a byte of memory moves."""

    bm: Array
    bn: Array
    splits: Array
    tiles: Array
    waves: Array
    steps: Array
    step: Array
    waiting: Array
    between: float
    compute: Array
    fetch: Array
    partial: Array
    longest: Array  # of compute and fetch


def _tilings(product: TiledProduct, machine: GpuMachine) -> _Tilings:
    """The ways to compute a product. Devices that differ in their memory alone have the same."""
    return _known_tilings(
        (product.batch, product.m, product.n, product.k, product.width, product.peak, product.split),
        (machine.sms, machine.clock, machine.device.peak_clock_hz, machine.cache_bandwidth, machine.shared_bytes),
        machine.generation,
        machine.parameters,
    )


@functools.lru_cache(maxsize=512)
def _known_tilings(
    product: tuple[float, float, float, float, float, float, bool],
    cores: tuple[int, float, float, float, int],
    generation: GpuArchitecture,
    p: GpuParameters,
) -> _Tilings:
    batch, m, n, k, width, peak, split = product
    sms, clock, peak_clock, cache_bandwidth, shared_bytes = cores
    bm, bn, splits = _candidates()
    bk = STEP_BYTES / width
    keep = (splits == 1) | (k >= splits * bk * 2) if split else splits == 1
    keep &= (bm <= max(64, 2 * m)) & (bn <= max(64, 2 * n))
    bm, bn, splits = bm[keep], bn[keep], splits[keep]

    rows, columns = np.ceil(m / bm), np.ceil(n / bn)
    tiles = rows * columns * batch * splits
    steps = np.ceil(k / (bk * splits))
    macs_per_cycle = peak / (2 * sms * peak_clock)
    fed = (bm + (bn / 2 if generation.paired else bn)) * STEP_BYTES / SHARED_BYTES_PER_CYCLE
    step = np.maximum(bm * bn * bk / (macs_per_cycle * p.tensor_share), fed) + p.tile_step_cycles
    stages = np.minimum(np.maximum(shared_bytes / ((bm + bn) * STEP_BYTES), 2), MOST_STAGES)
    waiting = np.maximum(step, p.load_cycles / stages)
    waves = np.ceil(tiles / sms)
    # Before warp-specialised kernels with TMA (Hopper), every tile waits for its own pipeline to fill.
    between = p.tile_cycles if generation.clusters else p.tile_cycles + p.load_cycles
    compute = (waves * steps * waiting + (waves - 1) * between) / clock

    shared = 0.5 if generation.clusters else 1.0
    sides = bm * np.where(columns > 1, shared, 1.0) + bn * np.where(rows > 1, shared, 1.0)
    busy = np.minimum(tiles, sms)
    per_sm = FETCH_BYTES_PER_CYCLE * clock
    fetch = tiles * sides * steps * STEP_BYTES / np.minimum(cache_bandwidth, busy * per_sm)
    partial = np.where(splits > 1, splits * (batch * m * n) * 4 / cache_bandwidth, 0.0)
    return _Tilings(
        bm=bm, bn=bn, splits=splits, tiles=tiles, waves=waves, steps=steps, step=step, waiting=waiting, between=between,
        compute=compute, fetch=fetch, partial=partial, longest=np.maximum(compute, fetch),
    )  # fmt: skip


def product_time(product: TiledProduct, machine: GpuMachine) -> GpuWork:
    """The fastest way to compute a product."""
    p, ways = machine.parameters, _tilings(product, machine)
    bm, bn, splits, tiles, waves = ways.bm, ways.bn, ways.splits, ways.tiles, ways.waves
    steps, step, waiting, between = ways.steps, ways.step, ways.waiting, ways.between
    compute, fetch, partial = ways.compute, ways.fetch, ways.partial
    results = product.batch * product.m * product.n
    once = traffic(product.read, product.written, machine, efficiency=p.gemm_stream, recency=product.recency)
    stored = once.seconds * product.written / max(1.0, product.read + product.written) / waves
    moved = once.seconds + partial - stored
    norm = p.overlap
    longest = np.maximum(ways.longest, moved)
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
