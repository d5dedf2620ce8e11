"""The fastest ways of products on the devices of several points of a sweep, each as `tiles` has it of one, to the last bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshcast.base import larger, number_of, raw, rows_of
from meshcast.estimate.estimator import Array
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.tile_ways import (
    FETCH_BYTES_PER_CYCLE,
    Indices,
    TiledProduct,
    Tilings,
    Ways,
    as_column,
    candidates,
    summing_seconds,
    tilings,
    writing_seconds,
)
from meshcast.hardware import devices_of


class TiledAtPoints:
    """Products in all ways on the devices of several points of a sweep, which cache and move data at different rates.

    Which ways may be the fastest is told by the slowest and the fastest of the devices; only these are timed, at every point.
    """

    def __init__(self, products: Sequence[TiledProduct], machine: GpuMachine, points: int) -> None:
        devices = devices_of(machine.device)
        assert devices is not None
        self._products, self._machine, self._points = products, machine, points
        self._ways = tilings(products, replace(machine, device=devices[0], points=None))
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
        results = as_column(ways.results)[rows]
        partial = np.where(splits > 1, splits * results * 4 / cache, 0.0)
        stored = self._writing[rows] / waves
        moved = self._seconds[rows] + partial - stored
        longest = np.maximum(np.maximum(compute, fetch), moved)
        powers = sum((seconds / longest) ** norm for seconds in (compute, fetch, moved))
        joined = longest * powers ** (1 / norm)
        prologue = machine.parameters.prologue_cycles / machine.clock
        summed = {
            (row, split): summing_seconds(ways.results[row], int(split), self._products[row].written, machine)
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
            partial = np.where(ways.splits > 1, ways.splits * as_column(ways.results) * 4 / cache, 0.0)
            fetch = ways.fetched / np.minimum(cache, ways.busy * FETCH_BYTES_PER_CYCLE * clock)
            longest = np.maximum(np.maximum(ways.cycles / clock, fetch), moved + partial)
            return longest, one(self._writing, axis=1)[:, None] / ways.waves

        low, high = bounds(least=True), bounds(least=False)
        bandwidth = np.max(raw(larger(machine.cache_bandwidth, machine.device.memory_bandwidth)))
        summed = np.min(raw(machine.gap + machine.launch)) + ways.splits * as_column(ways.results) * 4 / bandwidth
        least = low[0] + low[1] + np.where(ways.splits > 1, summed, 0.0)
        at_most = high[0] * 3 ** (1 / machine.parameters.overlap) + high[1]
        most = np.where(ways.kept & (ways.splits == 1), at_most, np.inf).min(axis=1, keepdims=True)
        return np.nonzero(ways.kept & ~(least > most * (1 + 1e-6)))


class TiledOnDevices:
    """A product on devices whose tiles take different cycles: each way at each point, as `_Tiled` has it of one."""

    def __init__(self, product: TiledProduct, machine: GpuMachine, points: int) -> None:
        self._products, self._machine, self._points = (product,), machine, points
        stream = machine.parameters.gemm_stream
        once = traffic(product.read, product.written, machine, efficiency=stream, recency=product.recency)
        self._once = [once]
        seconds = rows_of([once.seconds], points)
        writing = rows_of([writing_seconds(product, once.seconds, machine)], points)
        self._ways = ways = Tilings(self._products, machine, _near_enough(product, machine, seconds[0], writing[0]))
        self._stored = writing[:, None] / ways.waves
        self._moved = seconds[:, None] + ways.partial - self._stored

    def fastest(self) -> list[GpuWork]:
        """The fastest way of each product, at each point."""
        machine, ways, norm = self._machine, self._ways, self._machine.parameters.overlap
        clock, shape = raw(machine.clock), self._moved.shape
        compute, fetch = (np.broadcast_to(each, shape) for each in (ways.compute, ways.fetch))
        longest = np.maximum(np.maximum(compute, fetch), self._moved)
        near = self._may_be_fastest(longest)
        powers = sum((seconds[near] / longest[near]) ** norm for seconds in (compute, fetch, self._moved))
        joined = longest[near] * powers ** (1 / norm)
        splits = ways.splits[near[1], 0]
        summed = {
            (row, split): np.broadcast_to(
                raw(summing_seconds(ways.results[row], int(split), self._products[row].written, machine)), self._points
            )
            for row, split in set(zip(near[0].tolist(), splits.tolist(), strict=True))
        }
        summing = np.empty(len(splits))
        for (row, split), found in summed.items():
            here = (near[0] == row) & (splits == split)
            summing[here] = found[near[2][here]]
        prologue = machine.parameters.prologue_cycles / machine.clock
        begun = np.broadcast_to(raw(machine.launch + prologue), self._points)
        time = np.full(shape, np.inf)
        time[near] = begun[near[2]] + joined + self._stored[near] + summing
        cores, memory = np.maximum(compute, fetch), self._moved + self._stored
        fixed, everywhere = machine.launch + prologue, np.arange(self._points)
        works = []
        for row, once in enumerate(self._once):
            at = row, np.argmin(time[row], axis=0), everywhere
            split = ways.splits[at[1], 0] > 1
            works.append(
                GpuWork(
                    time=number_of(time[at]),
                    compute=number_of(cores[at]),
                    computing=number_of(np.broadcast_to(ways.arithmetic, shape)[at] / clock),
                    fixed=number_of(np.where(split, raw(fixed + machine.gap), raw(fixed + 0.0))),
                    memory=number_of(memory[at]),
                    dram_bytes=once.dram_bytes,
                )
            )
        return works

    def _may_be_fastest(self, longest: Array) -> tuple[Indices, ...]:
        """`_Tiled._may_be_fastest` at each point."""
        machine, ways = self._machine, self._ways
        bandwidth = raw(larger(machine.cache_bandwidth, machine.device.memory_bandwidth))
        results = np.array(ways.results, dtype=np.float64)[:, None, None]
        summed = raw(machine.gap + machine.launch) + ways.splits * results * 4 / bandwidth
        least = longest + self._stored + np.where(ways.splits > 1, summed, 0.0)
        at_most = longest * 3 ** (1 / machine.parameters.overlap) + self._stored
        most = np.where(ways.kept & (ways.splits == 1), at_most, np.inf).min(axis=1, keepdims=True)
        return np.nonzero(ways.kept & ~(least > most * (1 + 1e-9)))


def _near_enough(product: TiledProduct, machine: GpuMachine, seconds: Array, writing: Array) -> Ways | None:
    """The ways of a product that may be the fastest on one of several devices; None where that cannot be told beforehand.

    A way takes at least what it would take where every number is at its best (most SMs, each as fast as the fastest), and the
    best one at most what it takes where every number is at its worst: `TiledAtPoints._may_be_fastest` has the same of devices
    whose tiles take the same cycles.
    """
    devices = devices_of(machine.device)
    assert devices is not None
    first = devices[0]
    if product.chained:  # waits for blocks beside it, which grows with SMs where all else falls
        return None
    sms, clock, peak_clock = (raw(each) for each in (machine.sms, machine.clock, machine.device.peak_clock_hz))
    macs = raw(product.peak) / (2 * sms * peak_clock)
    cache, memory = raw(machine.cache_bandwidth), raw(machine.device.memory_bandwidth)
    share = writing / np.where(seconds > 0, seconds, 1.0)

    def ends(best: bool) -> Tilings:
        """The ways where every number is at its best, or at its worst."""
        most = np.max if best else np.min
        cores, hertz, rate = int(most(sms)), float(most(clock)), float(most(cache))
        device = replace(
            first, cores=cores, clock_hz=hertz, peak_clock_hz=1.0, cache_bandwidth=rate / machine.parameters.cache_share,
            memory_bandwidth=0.0,
        )  # fmt: skip
        given = replace(product, peak=2.0 * cores * float(most(macs)))
        return Tilings([given], replace(machine, device=device, points=None))

    fast, slow, fast_rate = ends(best=True), ends(best=False), float(np.max(cache))
    partial = fast.splits * fast.results[0] * 4
    low = np.maximum(fast.compute, fast.fetch)
    low = np.maximum(
        low, seconds.min() * (1 - share.max() / fast.waves) + np.where(fast.splits > 1, partial / fast_rate, 0.0)
    )
    summed = np.min(raw(machine.gap + machine.launch)) + partial / max(fast_rate, float(np.max(memory)))
    least = low + writing.min() / slow.waves + np.where(fast.splits > 1, summed, 0.0)
    high = np.maximum(slow.compute, slow.fetch)
    high = np.maximum(high, seconds.max() * (1 - share.min() / slow.waves))
    at_most = high * 3 ** (1 / machine.parameters.overlap) + writing.max() / fast.waves
    most = np.where(fast.kept & (fast.splits == 1), at_most, np.inf).min()
    near = (fast.kept & ~(least > most * (1 + 1e-6)))[0]
    bm, bn, splits = candidates()
    return bm[near], bn[near], splits[near]
