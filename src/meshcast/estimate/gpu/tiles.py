"""Tiled matrix products: the fastest of many tile shapes and K-splits, as an autotuner would find it.

For a tile `bm x bn`, K-steps of 128 bytes and `s` splits of K:
 - `step = max(max(bm * bn * bk / MACs per cycle / share, (bm + bn) * bk * width / 128 bytes per cycle) + c, load /
   stages)` cycles: shared memory feeds the tensor cores with 128 bytes per cycle and holds `stages` steps, whose loads
   are under way at once, so that a step takes at least that part of a load's latency (after Little's law); operands that
   pass through registers (TF32) take `r (bm + bn)` cycles more, and are not shared by clusters;
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
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from meshcast.base import KeptBeside, NumberColumn, OneByOneError, larger, number_of, raw, rows_of, smaller
from meshcast.estimate.estimator import Array
from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.elementwise import loop
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.hardware import devices_of
from meshcast.lower import Recency

Indices = npt.NDArray[np.signedinteger]
AT_ONCE = 32  # products whose tiles are worked out together: arrays that stay in a core's cache
STEP_BYTES = 128
SHARED_BYTES_PER_CYCLE = 128
FETCH_BYTES_PER_CYCLE = 64
MOST_STAGES = 8  # that libraries' kernels are compiled for
RESIDENT = 128 * 128  # accumulators of all blocks of an SM: half of its registers
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
    unpacked: float = 0.0  # bytes read, were operands stored as the units take them; 0: they are
    carried: float = (
        0.0  # cycles that a row or a column of a tile's step takes through registers; 0: units read shared memory
    )
    chained: float = 0.0  # cycles of such a step beside, from loads to registers and products, one after the other


@functools.cache
def _candidates() -> tuple[Array, Array, Array]:
    """Tile rows, columns and K-splits: one side is at least a warp group's 64 rows."""
    grid = [(bm, bn, s) for bm in _SIDES for bn in _SIDES if max(bm, bn) >= 64 and bm * bn <= _LARGEST for s in _SPLITS]
    bm, bn, s = np.array(grid, dtype=np.float64).T
    return bm, bn, s


def product_time(product: TiledProduct, machine: GpuMachine) -> GpuWork:
    """The fastest way to compute a product."""
    found = machine.products.get(product)
    if found is None:
        time_products([product], machine)
        found = machine.products[product]
    return found


def time_products(products: Iterable[TiledProduct], machine: GpuMachine) -> None:
    """Works out what `product_time` will be asked: many at a time, as NumPy takes longer to be called than for one's tiles."""
    waiting = [each for each in dict.fromkeys(products) if each not in machine.products]
    for begin in range(0, len(waiting), AT_ONCE):
        some = waiting[begin : begin + AT_ONCE]
        ways = _Tiled(some, machine) if machine.points is None else TiledAtPoints(some, machine, machine.points)
        machine.products.update(zip(some, ways.fastest(), strict=True))


class _Tilings:
    """Products in all ways, as far as no memory enters: a row for each product, a column for each tile and split of K."""

    def __init__(self, products: Sequence[TiledProduct], machine: GpuMachine) -> None:
        p, generation = machine.parameters, machine.generation
        self.bm, self.bn, self.splits = bm, bn, splits = _candidates()
        m, n, k = (_column([getattr(each, name) for each in products]) for name in ("m", "n", "k"))
        bk = _column([STEP_BYTES / each.width for each in products])
        self.kept = (splits == 1) | ((k >= splits * bk * 2) & _column([each.split for each in products]).astype(bool))
        self.kept &= (bm <= np.maximum(64, 2 * m)) & (bn <= np.maximum(64, 2 * n))

        rows, columns = np.ceil(m / bm), np.ceil(n / bn)
        self.tiles = tiles = rows * columns * _column([each.batch for each in products]) * splits
        self.steps = steps = np.ceil(k / (bk * splits))
        macs_per_cycle = _column([each.peak / (2 * machine.sms * machine.device.peak_clock_hz) for each in products])
        fed = (bm + (bn / 2 if generation.paired else bn)) * STEP_BYTES / SHARED_BYTES_PER_CYCLE
        carried = _column([each.carried for each in products])
        beside = np.minimum(RESIDENT / (bm * bn), tiles / machine.sms)  # blocks of an SM that wait at the same time
        chained = _column([each.chained for each in products]) / np.clip(beside, 1, MOST_STAGES) + p.tile_step_cycles
        self.step = np.maximum(bm * bn * bk / (macs_per_cycle * p.tensor_share), fed) + chained + carried * (bm + bn)
        stages = np.minimum(np.maximum(machine.shared_bytes / ((bm + bn) * STEP_BYTES), 2), MOST_STAGES)
        self.waiting = np.maximum(self.step, p.load_cycles / stages)
        self.waves = waves = np.ceil(tiles / machine.sms)
        # Before warp-specialised kernels with TMA (Hopper), every tile waits for its own pipeline to fill.
        self.between = p.tile_cycles if generation.clusters else p.tile_cycles + p.load_cycles
        self.cycles = waves * steps * self.waiting + (waves - 1) * self.between
        self.arithmetic = waves * steps * self.step + (waves - 1) * self.between
        self.compute = self.cycles / machine.clock

        shared = np.where(carried > 0, 1.0, 0.5) if generation.clusters else 1.0
        sides = bm * np.where(columns > 1, shared, 1.0) + bn * np.where(rows > 1, shared, 1.0)
        self.busy = np.minimum(tiles, machine.sms)
        per_sm = FETCH_BYTES_PER_CYCLE * machine.clock
        self.fetched = tiles * sides * steps * STEP_BYTES
        self.fetch = self.fetched / np.minimum(machine.cache_bandwidth, self.busy * per_sm)
        self.results = [each.batch * each.m * each.n for each in products]
        self.partial = np.where(splits > 1, splits * _column(self.results) * 4 / machine.cache_bandwidth, 0.0)


_TILINGS: KeptBeside[_Tilings] = KeptBeside(16)  # a pipeline's programs ask for nine; each has arrays of 2 MB


def _tilings(products: Sequence[TiledProduct], machine: GpuMachine) -> _Tilings:
    """The ways of products; the same for all GPUs that compute and cache alike."""
    asked = tuple((e.batch, e.m, e.n, e.k, e.width, e.peak, e.split, e.carried, e.chained) for e in products)
    alike = machine.sms, machine.clock, machine.device.peak_clock_hz, machine.cache_bandwidth, machine.shared_bytes
    return _TILINGS.of(machine.parameters, (asked, alike, machine.generation), lambda: _Tilings(products, machine))


class _Tiled:
    """Products in all ways, with the bytes that each moves."""

    def __init__(self, products: Sequence[TiledProduct], machine: GpuMachine) -> None:
        self._products, self._machine = products, machine
        self._ways = ways = _tilings(products, machine)
        stream = machine.parameters.gemm_stream
        self._once = [
            traffic(each.read, each.written, machine, efficiency=stream, recency=each.recency) for each in products
        ]
        seconds = [once.seconds for once in self._once]
        writing = [writing_seconds(each, once, machine) for once, each in zip(seconds, products, strict=True)]
        self._stored = _column(writing) / ways.waves
        self._moved = _column(seconds) + ways.partial - self._stored

    def fastest(self) -> list[GpuWork]:
        """The fastest way of each product."""
        machine, norm = self._machine, self._machine.parameters.overlap
        longest = np.maximum(np.maximum(self._ways.compute, self._ways.fetch), self._moved)
        near = self._may_be_fastest(longest)
        powers = sum(
            (seconds[near] / longest[near]) ** norm for seconds in (self._ways.compute, self._ways.fetch, self._moved)
        )
        joined = longest[near] * powers ** (1 / norm)
        summing = self._summing(near)
        prologue = machine.parameters.prologue_cycles / machine.clock
        time = machine.launch + prologue + joined + self._stored[near] + summing
        ends = np.searchsorted(near[0], np.arange(len(self._products) + 1))
        found = []
        for row, (begin, end) in enumerate(itertools.pairwise(ends.tolist())):
            fastest = begin + int(np.argmin(time[begin:end]))
            place = row, int(near[1][fastest])
            found.append(self._work(place, float(time[fastest]), float(summing[fastest])))
        return found

    def _may_be_fastest(self, longest: Array) -> tuple[Indices, ...]:
        """The ways of each product that are timed, by the longest of what overlaps.

        A norm lies between the longest of three and 3^(1/p) times as much, so that few tiles can be the fastest.
        """
        machine, splits = self._machine, self._ways.splits
        bandwidth = max(
            machine.cache_bandwidth, machine.device.memory_bandwidth
        )  # no sum of partial results exceeds it
        summed = machine.gap + machine.launch + splits * _column(self._ways.results) * 4 / bandwidth
        least = longest + self._stored + np.where(splits > 1, summed, 0.0)
        at_most = longest * 3 ** (1 / machine.parameters.overlap) + self._stored
        most = np.where(self._ways.kept & (splits == 1), at_most, np.inf).min(axis=1, keepdims=True)
        return np.nonzero(self._ways.kept & ~(least > most * (1 + 1e-9)))

    def _summing(self, near: tuple[Indices, ...]) -> Array:
        """Seconds that adding up the partial results takes beside the product."""
        ways = list(zip(near[0].tolist(), self._ways.splits[near[1]].tolist(), strict=True))
        seconds = {
            (row, splits): _summing(self._ways.results[row], int(splits), self._products[row].written, self._machine)
            for row, splits in set(ways)
        }
        return np.array([seconds[way] for way in ways])

    def _work(self, at: tuple[int, int], time: float, summing: float) -> GpuWork:
        """The work of a product in one way."""
        machine, p, (row, way) = self._machine, self._machine.parameters, at
        prologue, once = p.prologue_cycles / machine.clock, self._once[row]
        return GpuWork(
            time=time,
            compute=float(max(self._ways.compute[at], self._ways.fetch[at])),
            computing=float(self._ways.arithmetic[at]) / machine.clock,
            fixed=machine.launch + prologue + (machine.gap if self._ways.splits[way] > 1 else 0.0),
            memory=float(self._moved[at] + self._stored[at]),
            dram_bytes=once.dram_bytes,
            formula="t = launch + prologue + |compute, fetch, mem + partial - store|_p + store + sum",
            terms=(*self._terms(at), *once.terms, *self._last_terms(at, summing)) if machine.explaining else (),
        )

    def _terms(self, at: tuple[int, int]) -> tuple[Term, ...]:
        machine, (row, way) = self._machine, at
        return machine.named(
            ("tile rows", "bm", self._ways.bm[way], ""),
            ("tile columns", "bn", self._ways.bn[way], ""),
            ("parts of K", "s", self._ways.splits[way], ""),
            ("tiles", "n", self._ways.tiles[at], ""),
            ("waves", "w", self._ways.waves[at], ""),
            ("steps along K", "k", self._ways.steps[at], ""),
            ("cycles of a step", "c", self._ways.waiting[at], ""),
            ("efficiency of the matrix engine", "e", machine.parameters.tensor_share, ""),
            ("peak", "P", self._products[row].peak, "FLOP/s"),
            ("cycles between tiles", "b", self._ways.between, ""),
            ("clock", "f", machine.clock, "Hz"),
            ("arithmetic", "compute = (w k c + (w - 1) b)/f", self._ways.compute[at], "s"),
            ("operands from L2", "fetch", self._ways.fetch[at], "s"),
        )

    def _last_terms(self, at: tuple[int, int], summing: float) -> tuple[Term, ...]:
        machine = self._machine
        return machine.named(
            ("storing the last wave's results", "store", self._stored[at], "s"),
            ("partial results", "partial", self._ways.partial[at], "s"),
            ("adding them up", "sum", summing, "s"),
            ("filling the pipeline", "prologue", machine.parameters.prologue_cycles / machine.clock, "s"),
            ("launch", "launch", machine.launch, "s"),
            ("norm of what overlaps", "p", machine.parameters.overlap, ""),
        )


class TiledAtPoints:
    """Products in all ways on the devices of several points of a sweep, which cache and move data at different rates.

    Which ways may be the fastest is told by the slowest and the fastest of the devices; only these are timed, at every point.
    """

    def __init__(self, products: Sequence[TiledProduct], machine: GpuMachine, points: int) -> None:
        devices = devices_of(machine.device)
        assert devices is not None
        if any(isinstance(each, NumberColumn) for each in (machine.device.peak_clock_hz, *(e.peak for e in products))):
            raise OneByOneError("tiles are of one peak")
        self._products, self._machine, self._points = products, machine, points
        self._ways = _tilings(products, replace(machine, device=devices[0], points=None))
        stream = machine.parameters.gemm_stream
        self._once = [
            traffic(each.read, each.written, machine, efficiency=stream, recency=each.recency) for each in products
        ]
        seconds = [once.seconds for once in self._once]
        self._seconds = rows_of(seconds, points)
        self._writing = rows_of(
            (writing_seconds(e, s, machine) for e, s in zip(products, seconds, strict=True)), points
        )

    def fastest(self) -> list[GpuWork]:
        """The fastest way of each product, at each point."""
        machine, ways, norm = self._machine, self._ways, self._machine.parameters.overlap
        near = self._may_be_fastest()
        rows, places = near
        splits, waves = ways.splits[places][:, None], ways.waves[near][:, None]
        clock, cache = raw(machine.clock), raw(machine.cache_bandwidth)
        compute = self._at(ways.cycles[near][:, None] / clock)
        fetch = self._at(
            ways.fetched[near][:, None]
            / np.minimum(cache, ways.busy[near][:, None] * raw(FETCH_BYTES_PER_CYCLE * machine.clock))
        )
        results = _column(ways.results)[rows]
        partial = np.where(splits > 1, splits * results * 4 / cache, 0.0)
        stored = self._writing[rows] / waves
        moved = self._seconds[rows] + partial - stored
        longest = np.maximum(np.maximum(compute, fetch), moved)
        powers = sum((seconds / longest) ** norm for seconds in (compute, fetch, moved))
        joined = longest * powers ** (1 / norm)
        prologue = machine.parameters.prologue_cycles / machine.clock
        summed = {
            (row, split): _summing(ways.results[row], int(split), self._products[row].written, machine)
            for row, split in set(zip(rows.tolist(), ways.splits[places].tolist(), strict=True))
        }
        summing = rows_of((summed[way] for way in zip(rows.tolist(), splits[:, 0].tolist(), strict=True)), self._points)
        time = raw(machine.launch + prologue) + joined + stored + summing
        fixed = machine.launch + prologue
        ends = np.searchsorted(rows, np.arange(len(self._products) + 1))
        cores, memory = np.maximum(compute, fetch), moved + stored
        found = []
        for row, (begin, end) in enumerate(itertools.pairwise(ends.tolist())):
            best = begin + np.argmin(time[begin:end], axis=0)
            at = best, np.arange(self._points)
            found.append(
                GpuWork(
                    time=number_of(time[at]),
                    compute=number_of(cores[at]),
                    computing=number_of(ways.arithmetic[near][best] / clock),
                    fixed=number_of(np.where(splits[best, 0] > 1, raw(fixed + machine.gap), raw(fixed + 0.0))),
                    memory=number_of(memory[at]),
                    dram_bytes=self._once[row].dram_bytes,
                )
            )
        return found

    def _at(self, found: Array) -> Array:
        """An array with a place for each point, where all have the same, too."""
        return np.broadcast_to(found, (len(found), self._points))

    def _may_be_fastest(self) -> tuple[Indices, ...]:
        """The ways of each product that may be the fastest at some point.

        What a way takes is at least what it takes where everything is at its fastest, and the best one at most what it takes
        where everything is at its slowest (`_Tiled._may_be_fastest` has the bounds of one point). Of `mem = s (1 - r / w)`, with
        r the share of a product's seconds that writes its results, both are taken at their least, or at their most.
        """
        machine, ways = self._machine, self._ways
        share = self._writing / np.where(self._seconds > 0, self._seconds, 1.0)

        def bounds(least: bool) -> tuple[Array, Array]:
            """(longest of what overlaps, storing) at the least, or at the most."""
            one, other = (np.min, np.max) if least else (np.max, np.min)
            clock, cache = other(raw(machine.clock)), other(raw(machine.cache_bandwidth))
            moved = one(self._seconds, axis=1)[:, None] * (1 - other(share, axis=1)[:, None] / ways.waves)
            partial = np.where(ways.splits > 1, ways.splits * _column(ways.results) * 4 / cache, 0.0)
            fetch = ways.fetched / np.minimum(cache, ways.busy * FETCH_BYTES_PER_CYCLE * clock)
            longest = np.maximum(np.maximum(ways.cycles / clock, fetch), moved + partial)
            return longest, one(self._writing, axis=1)[:, None] / ways.waves

        low, high = bounds(least=True), bounds(least=False)
        bandwidth = np.max(raw(larger(machine.cache_bandwidth, machine.device.memory_bandwidth)))
        summed = np.min(raw(machine.gap + machine.launch)) + ways.splits * _column(ways.results) * 4 / bandwidth
        least = low[0] + low[1] + np.where(ways.splits > 1, summed, 0.0)
        at_most = high[0] * 3 ** (1 / machine.parameters.overlap) + high[1]
        most = np.where(ways.kept & (ways.splits == 1), at_most, np.inf).min(axis=1, keepdims=True)
        return np.nonzero(ways.kept & ~(least > most * (1 + 1e-6)))


def writing_seconds(product: TiledProduct, seconds: float, machine: GpuMachine) -> float:
    """Seconds of a product's results: their share of the seconds of all its bytes.

    Memory is the faster the more is asked of it. Operands that are stored in fewer bits than the units take are no reason for
    results to be written more slowly: theirs is the rate beside operands as the units take them, if that is the faster one.
    """
    share = seconds * product.written / max(1.0, product.read + product.written)
    if product.unpacked <= product.read:
        return share
    stream = machine.parameters.gemm_stream
    wide = traffic(product.unpacked, product.written, machine, efficiency=stream, recency=product.recency)
    return smaller(share, wide.seconds * product.written / max(1.0, product.unpacked + product.written))


def _column(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float64)[:, None]


def _summing(results: float, splits: int, written: float, machine: GpuMachine) -> float:
    """Seconds of the kernel that adds partial results, with the gap before it."""
    if splits == 1:
        return 0.0
    return machine.gap + loop(results, splits * results * 4, written, 0.0, machine).time
