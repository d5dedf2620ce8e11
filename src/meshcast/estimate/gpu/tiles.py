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

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from meshcast.base import NumberColumn, joined, mapped, of_points
from meshcast.estimate.estimator import Array
from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.tile_ways import (
    Indices,
    TiledProduct,
    as_column,
    summing_seconds,
    tilings,
    writing_seconds,
)
from meshcast.estimate.gpu.tiles_at_points import TiledAtPoints, TiledOnDevices

AT_ONCE = 32  # products whose tiles are worked out together: arrays that stay in a core's cache


def product_time(product: TiledProduct, machine: GpuMachine) -> GpuWork:
    """The fastest way to compute a product."""
    key = _known_as(product, machine)
    found = machine.products.get(key)
    if found is None:
        time_products([product], machine)
        found = machine.products[key]
    return found


def _known_as(product: TiledProduct, machine: GpuMachine) -> TiledProduct:
    """A product with the values of its columns: of equal ones each has its own."""
    return product if machine.points is None else mapped(product, lambda column: column.values.tobytes())


def time_products(products: Iterable[TiledProduct], machine: GpuMachine) -> None:
    """Works out what `product_time` will be asked: many at a time, as NumPy takes longer to be called than for one's tiles."""
    known = {_known_as(each, machine): each for each in products}
    waiting = [(key, each) for key, each in known.items() if key not in machine.products]
    for begin in range(0, len(waiting), AT_ONCE):
        keys, some = zip(*waiting[begin : begin + AT_ONCE], strict=True)
        points = machine.points
        found = _Tiled(some, machine).fastest() if points is None else _at_points(some, machine, points)
        machine.products.update(zip(keys, found, strict=True))


def _at_points(products: Sequence[TiledProduct], machine: GpuMachine, points: int) -> list[GpuWork]:
    """The works of products on all devices that one stands for, neighbours by their cores together."""
    if _tiled_alike(products, machine):
        return TiledAtPoints(products, machine, points).fastest()
    blocks = machine.blocks
    if len(blocks) == 1:
        # One at a time: a product in many ways at all points is as much as a cache holds.
        return [work for one in products for work in TiledOnDevices(one, machine, points).fastest()]
    found: list[list[GpuWork]] = []
    for places, part in blocks:
        here = [of_points(each, places) for each in products]
        if part.points is None:
            found.append([replace(work, formula="", terms=()) for work in _Tiled(here, part).fastest()])
        else:
            found.append(_at_points(here, part, part.points))
    whose = [places for places, _ in blocks]
    return [joined(works, whose) for works in zip(*found, strict=True)]


def _tiled_alike(products: Sequence[TiledProduct], machine: GpuMachine) -> bool:
    """Whether the tiles of products take the same cycles on all devices that one stands for."""
    numbers = (machine.sms, machine.device.peak_clock_hz, *(each.peak for each in products))
    return not any(isinstance(each, NumberColumn) for each in numbers)


class _Tiled:
    """Products in all ways, with the bytes that each moves."""

    def __init__(self, products: Sequence[TiledProduct], machine: GpuMachine) -> None:
        self._products, self._machine = products, machine
        self._ways = ways = tilings(products, machine)
        stream = machine.parameters.gemm_stream
        self._once = [
            traffic(each.read, each.written, machine, efficiency=stream, recency=each.recency) for each in products
        ]
        seconds = [once.seconds for once in self._once]
        writing = [writing_seconds(each, once, machine) for once, each in zip(seconds, products, strict=True)]
        self._stored = as_column(writing) / ways.waves
        self._moved = as_column(seconds) + ways.partial - self._stored

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
        summed = machine.gap + machine.launch + splits * as_column(self._ways.results) * 4 / bandwidth
        least = longest + self._stored + np.where(splits > 1, summed, 0.0)
        at_most = longest * 3 ** (1 / machine.parameters.overlap) + self._stored
        most = np.where(self._ways.kept & (splits == 1), at_most, np.inf).min(axis=1, keepdims=True)
        return np.nonzero(self._ways.kept & ~(least > most * (1 + 1e-9)))

    def _summing(self, near: tuple[Indices, ...]) -> Array:
        """Seconds that adding up the partial results takes beside the product."""
        ways = list(zip(near[0].tolist(), self._ways.splits[near[1]].tolist(), strict=True))
        seconds = {
            (row, splits): summing_seconds(
                self._ways.results[row], int(splits), self._products[row].written, self._machine
            )
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
