"""Ways in which a product may be tiled: the cycles of each, and what its operands take from L2, as far as no memory enters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside, raw, rows_of, smaller
from meshcast.estimate.estimator import Array
from meshcast.estimate.gpu.elementwise import loop
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import Recency

Indices = npt.NDArray[np.signedinteger]
STEP_BYTES = 128
SHARED_BYTES_PER_CYCLE = 128
FETCH_BYTES_PER_CYCLE = 64
MOST_STAGES = 8  # that libraries' kernels are compiled for
RESIDENT = 128 * 128  # accumulators of all blocks of an SM: half of its registers
_SIDES = (8, 16, 32, 64, 96, 128, 160, 192, 256, 320)
_SPLITS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
SMALL = 16  # times that a read is smaller than the largest where it is no operand of a product
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
    unpacked: float = 0.0  # bytes read, were operands stored as the units take them; 0: they are
    carried: float = (
        0.0  # cycles that a row or a column of a tile's step takes through registers; 0: units read shared memory
    )
    chained: float = 0.0  # cycles of such a step beside, from loads to registers and products, one after the other

    def as_unpacked(self) -> TiledProduct:
        """The product of operands that are stored as the units take them."""
        return replace(self, read=self.unpacked, recency=self.unpacked_recency)

    @property
    def unpacked_recency(self) -> Recency | None:
        """When they were last used: what they grow by is theirs, not that of small reads beside them (scales, biases)."""
        if self.recency is None or not self.recency.reads:
            return self.recency
        large = max(size for _, size in self.recency.reads) / SMALL
        packed = sum(size for _, size in self.recency.reads if size >= large)
        ratio = 1 + (self.unpacked - self.read) / max(1, packed)
        reads = tuple((age, round(size * ratio) if size >= large else size) for age, size in self.recency.reads)
        return replace(self.recency, reads=reads)


Ways = tuple[Array, Array, Array]


@functools.cache
def candidates() -> Ways:
    """Tile rows, columns and K-splits: one side is at least a warp group's 64 rows."""
    grid = [(bm, bn, s) for bm in _SIDES for bn in _SIDES if max(bm, bn) >= 64 and bm * bn <= _LARGEST for s in _SPLITS]
    bm, bn, s = np.array(grid, dtype=np.float64).T
    return bm, bn, s


class Tilings:
    """Products in all ways, as far as no memory enters: a row for each product, a column for each tile and split of K.

    Where the machine stands for several, arrays have a last dimension with a place for each of them.

    Args:
        products: The products.
        machine: The GPU.
        among: The tiles and splits that are looked at; all of them by default.
    """

    def __init__(self, products: Sequence[TiledProduct], machine: GpuMachine, among: Ways | None = None) -> None:
        p, generation, points = machine.parameters, machine.generation, machine.points
        sms, clock, cache = raw(machine.sms), raw(machine.clock), raw(machine.cache_bandwidth)

        def column(values: Sequence[float]) -> Array:
            found = np.array(values, dtype=np.float64)
            return found[:, None] if points is None else found[:, None, None]

        ways = among or candidates()
        self.bm, self.bn, self.splits = bm, bn, splits = ways if points is None else tuple(way[:, None] for way in ways)
        m, n, k = (column([getattr(each, name) for each in products]) for name in ("m", "n", "k"))
        bk = column([STEP_BYTES / each.width for each in products])
        self.kept = (splits == 1) | ((k >= splits * bk * 2) & column([each.split for each in products]).astype(bool))
        self.kept &= (bm <= np.maximum(64, 2 * m)) & (bn <= np.maximum(64, 2 * n))

        rows, columns = np.ceil(m / bm), np.ceil(n / bn)
        self.tiles = tiles = rows * columns * column([each.batch for each in products]) * splits
        self.steps = steps = np.ceil(k / (bk * splits))
        macs = rows_of([each.peak / (2 * machine.sms * machine.device.peak_clock_hz) for each in products], points)
        macs_per_cycle = macs[:, None]
        fed = (bm + (bn / 2 if generation.paired else bn)) * STEP_BYTES / SHARED_BYTES_PER_CYCLE
        carried = column([each.carried for each in products])
        beside = np.minimum(RESIDENT / (bm * bn), tiles / sms)  # blocks of an SM that wait at the same time
        chained = column([each.chained for each in products]) / np.clip(beside, 1, MOST_STAGES) + p.tile_step_cycles
        self.step = np.maximum(bm * bn * bk / (macs_per_cycle * p.tensor_share), fed) + chained + carried * (bm + bn)
        stages = np.minimum(np.maximum(machine.shared_bytes / ((bm + bn) * STEP_BYTES), 2), MOST_STAGES)
        self.waiting = np.maximum(self.step, p.load_cycles / stages)
        self.waves = waves = np.ceil(tiles / sms)
        # Before warp-specialised kernels with TMA (Hopper), every tile waits for its own pipeline to fill.
        self.between = p.tile_cycles if generation.clusters else p.tile_cycles + p.load_cycles
        self.cycles = waves * steps * self.waiting + (waves - 1) * self.between
        self.arithmetic = waves * steps * self.step + (waves - 1) * self.between
        self.compute = self.cycles / clock

        shared = np.where(carried > 0, 1.0, 0.5) if generation.clusters else 1.0
        sides = bm * np.where(columns > 1, shared, 1.0) + bn * np.where(rows > 1, shared, 1.0)
        self.busy = np.minimum(tiles, sms)
        per_sm = FETCH_BYTES_PER_CYCLE * clock
        self.fetched = tiles * sides * steps * STEP_BYTES
        self.fetch = self.fetched / np.minimum(cache, self.busy * per_sm)
        self.results = [each.batch * each.m * each.n for each in products]
        self.partial = np.where(splits > 1, splits * column(self.results) * 4 / cache, 0.0)


_TILINGS: KeptBeside[Tilings] = KeptBeside(16)  # a pipeline's programs ask for nine; each has arrays of 2 MB


def tilings(products: Sequence[TiledProduct], machine: GpuMachine) -> Tilings:
    """The ways of products; the same for all GPUs that compute and cache alike."""
    asked = tuple((e.batch, e.m, e.n, e.k, e.width, e.peak, e.split, e.carried, e.chained) for e in products)
    alike = machine.sms, machine.clock, machine.device.peak_clock_hz, machine.cache_bandwidth, machine.shared_bytes
    return _TILINGS.of(machine.parameters, (asked, alike, machine.generation), lambda: Tilings(products, machine))


def writing_seconds(product: TiledProduct, seconds: float, machine: GpuMachine) -> float:
    """Seconds of a product's results: their share of the seconds of all its bytes.

    Memory is the faster the more is asked of it. Operands that are stored in fewer bits than the units take are no reason for
    results to be written more slowly: theirs is the rate beside operands as the units take them, if that is the faster one.
    """
    share = seconds * product.written / max(1.0, product.read + product.written)
    if product.unpacked <= product.read:
        return share
    stream = machine.parameters.gemm_stream
    wide = traffic(product.unpacked, product.written, machine, efficiency=stream, recency=product.unpacked_recency)
    return smaller(share, wide.seconds * product.written / max(1.0, product.unpacked + product.written))


def as_column(values: Sequence[float]) -> Array:
    """Numbers of products, a row for each."""
    return np.array(values, dtype=np.float64)[:, None]


def summing_seconds(results: float, splits: int, written: float, machine: GpuMachine) -> float:
    """Seconds of the kernel that adds partial results, with the gap before it."""
    if splits == 1:
        return 0.0
    return machine.gap + loop(results, splits * results * 4, written, 0.0, machine).time
