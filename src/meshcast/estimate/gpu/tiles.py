"""Tiled matrix products: the fastest of many tile shapes and K-splits, as an autotuner would find it.

For a tile `bm x bn`, K-steps of 128 bytes and `s` splits of K:
 - `step = max(bm * bn * bk / MACs per cycle / share, (bm + bn) * bk * width / 128 bytes per cycle) + c` cycles (shared
   memory feeds the tensor cores with 128 bytes per cycle);
 - `compute = ceil(tiles * s / SMs) * (steps / s * step + between tiles) / clock`: wave quantisation;
 - `fetch = tiles * (bm + bn) * K * width / min(L2 bandwidth, busy SMs * bytes per SM)`, where clusters of 2 x 2 blocks
   share their operands (TMA multicast, from Hopper on) and an SM takes at most 64 bytes per cycle;
 - `memory`: operands and result once, and `s` partial results in f32;
 - `t = launch + prologue + |compute, fetch, memory|_p`, and for `s > 1` a kernel that sums the partial results.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meshcast.estimate.gpu.elementwise import loop
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower.kernel import Recency

Array = npt.NDArray[np.float64]
STEP_BYTES = 128
SHARED_BYTES_PER_CYCLE = 128
FETCH_BYTES_PER_CYCLE = 64
_SIDES = (8, 16, 32, 64, 96, 128, 160, 192, 256, 320)
_SPLITS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
_LARGEST = 256 * 160  # accumulators of a tile: registers of two warp groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
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


def product_time(product: Product, machine: Machine) -> Work:
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
    fed = (bm + bn) * STEP_BYTES / SHARED_BYTES_PER_CYCLE
    step = np.maximum(bm * bn * bk / (macs_per_cycle * p.tensor_share), fed) + p.tile_step_cycles
    # Before warp-specialised kernels with TMA (Hopper), every tile waits for its own pipeline to fill.
    between = (p.tile_ns if machine.clusters else p.tile_ns + p.prologue_ns) * 1e-9
    compute = np.ceil(tiles / machine.sms) * (steps * step / machine.clock + between)

    shared = 0.5 if machine.clusters else 1.0
    sides = bm * np.where(columns > 1, shared, 1.0) + bn * np.where(rows > 1, shared, 1.0)
    busy = np.minimum(tiles, machine.sms)
    per_sm = FETCH_BYTES_PER_CYCLE * machine.clock
    fetch = tiles * sides * steps * STEP_BYTES / np.minimum(machine.cache_bandwidth, busy * per_sm)

    results = product.batch * product.m * product.n
    once = traffic(product.read, product.written, machine, efficiency=p.gemm_stream, recency=product.recency)
    partial = np.where(splits > 1, splits * results * 4 / machine.cache_bandwidth, 0.0)
    moved = once.seconds + partial
    norm = p.overlap
    longest = np.maximum(np.maximum(compute, fetch), moved)
    powers = sum((seconds / longest) ** norm for seconds in (compute, fetch, moved))
    joined = longest * powers ** (1 / norm)
    summed = np.array([_reduction(results, s, product.written, machine).time for s in _SPLITS])
    extra = summed[np.searchsorted(np.array(_SPLITS), splits)]
    time = machine.launch + p.prologue_ns * 1e-9 + joined + extra
    best = int(np.argmin(time))
    return Work(
        time=float(time[best]),
        compute=float(max(compute[best], fetch[best])),
        memory=float(moved[best]),
        dram_bytes=once.dram_bytes,
    )


def _reduction(results: float, splits: int, written: float, machine: Machine) -> Work:
    """The kernel that adds partial results."""
    if splits == 1:
        return Work(time=0.0)
    return loop(results, splits * results * 4, written, 0.0, machine)
