"""The speed of light: no kernel can be faster than its arithmetic at peak or its bytes at full bandwidth.

`time = max(matrix_flops / P_dtype, vector_flops / V, transcendentals / T, bytes / W)` with dense peaks by operand type;
after Williams, Waterman and Patterson, "Roofline" (CACM 2009). `W` is the cache's bandwidth for kernels whose bytes fit
in it, where the catalogue knows it, and the memory's otherwise. Nothing is added for launches, tiles or clocks, so the
answer is a bound and its interval opens upwards only: `high = time * factor + launches`, with the factor from
`data/roofline.toml`.

What widens packed integers on their way into a product is no arithmetic of the bound: a unit that takes them as they are stored
does without, and fewer bits would be slower by it.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from importlib import resources

import numpy as np

from meshcast.base import larger, raw, rows_of
from meshcast.estimate.energy import joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array, Estimates, Origin, ProductFloor, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.image_batches import working_set
from meshcast.estimate.products import packed_operands
from meshcast.estimate.rates import Rate, matrix_rate, transcendental_rate, vector_rate
from meshcast.estimate.support import arithmetic_support
from meshcast.hardware import Device
from meshcast.lower import Kernel


@functools.cache
def interval_parameters() -> tuple[float, float]:
    """(factor, launches): the 95th percentile of measured over predicted, and device launch latencies per kernel."""
    text = resources.files("meshcast.estimate").joinpath("data/roofline.toml").read_text()
    data = tomllib.loads(text)["interval"]
    return float(data["factor"]), float(data["launches"])


def light_seconds(kernels: Sequence[Kernel], device: Device) -> Array:
    """Seconds of kernels at the speed of light: the longest of arithmetic at peak and bytes at full bandwidth."""
    return np.maximum(*light_bounds(kernels, device))


def light_bounds(kernels: Sequence[Kernel], device: Device, points: int | None = None) -> tuple[Array, Array]:
    """(arithmetic at peak, bytes at full bandwidth) in seconds; with a place for each point where a device stands for several."""
    column = functools.partial(rows_of, points=points)
    matrix_flops: Array = column(k.matrix_flops for k in kernels)
    peaks: Array = column(matrix_rate(k, device).flops if k.matrix_flops else 1.0 for k in kernels)
    rates = {dtype: vector_rate(dtype, device) for dtype in {k.dtype for k in kernels if k.vector_flops}}
    vector_peaks: Array = column(rates[k.dtype] if k.vector_flops else 1.0 for k in kernels)
    vector_flops: Array = column(_unavoidable(k) for k in kernels)
    transcendentals: Array = column(k.transcendentals for k in kernels)
    moved: Array = column(k.read_bytes + k.written_bytes for k in kernels)
    compute = np.maximum(matrix_flops / peaks, vector_flops / vector_peaks)
    compute = np.maximum(compute, transcendentals / raw(transcendental_rate(device)))
    bandwidth = np.empty_like(moved)
    bandwidth[:] = raw(device.memory_bandwidth)
    if device.cache_bandwidth:
        footprint: Array = column(
            working_set(k) if device.cells is not None else float(k.footprint_bytes) for k in kernels
        )
        cached = raw(larger(device.cache_bandwidth, device.memory_bandwidth))
        bandwidth = np.where(footprint <= raw(device.cache_bytes), cached, bandwidth)
    return compute, moved / bandwidth


def _unavoidable(kernel: Kernel) -> float:
    """Vector FLOPs without what widens packed operands of a product."""
    if not kernel.stored_bits:
        return kernel.vector_flops
    return max(0.0, kernel.vector_flops - sum(elements for elements, _ in packed_operands(kernel)))


class Roofline:
    """Fidelity `roofline`."""

    name = "roofline"
    fidelity = "roofline"
    by_kernel = True
    by_arithmetic = True

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Everything but collectives; types an engine lacks are answered by a wider one."""
        return arithmetic_support(kernel, device)

    def product_floor(self, device: Device) -> ProductFloor:
        """See `estimate.least`."""
        return "time"

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The terms of the longest of arithmetic and traffic."""
        answer = self.estimate([kernel], device)
        compute, memory, time = (float(c[0]) for c in (answer.compute_time, answer.memory_time, answer.time))
        moved = kernel.read_bytes + kernel.written_bytes
        terms = [Term("matrix FLOPs", "F", kernel.matrix_flops, "FLOP")]
        if kernel.matrix_flops:
            terms.append(Term("dense peak", "P", matrix_rate(kernel, device).flops, "FLOP/s"))
        terms += [
            Term("vector FLOPs", "F_v", _unavoidable(kernel), "FLOP"),
            Term("transcendental functions", "T", kernel.transcendentals),
            Term("arithmetic at peak", "compute", compute, "s"),
            Term("bytes moved", "B", moved, "B"),
            Term("bandwidth", "W", moved / memory if memory else device.memory_bandwidth, "B/s"),
            Term("traffic at full bandwidth", "mem = B/W", memory, "s"),
        ]
        return Explanation(
            estimator=self.name,
            model="speed of light",
            formula="t = max(compute, mem)",
            terms=tuple(terms),
            time=time,
            limited_by=limiting(compute, memory, 0.0),
        )

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Speed-of-light times of kernels."""
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        rates = [matrix_rate(k, device) if k.matrix_flops else Rate(flops=1.0, key="none") for k in kernels]
        matrix_flops: Array = column(k.matrix_flops for k in kernels)
        moved: Array = column(k.read_bytes + k.written_bytes for k in kernels)
        compute, memory = light_bounds(kernels, device)
        time = np.maximum(compute, memory)
        factor, launches = interval_parameters()
        flop_energy: Array = column(
            joules_per_flop(device, rate.key, rate.flops) if k.matrix_flops else 0.0
            for k, rate in zip(kernels, rates, strict=True)
        )
        return Estimates(
            time=time,
            low=time,
            high=time * factor + launches * device.launch_latency_s,
            compute_time=compute,
            memory_time=memory,
            overhead=np.zeros(len(kernels)),
            energy=matrix_flops * flop_energy + moved * joules_per_byte(device),
            origin=tuple(Origin.GUESSED if k.guessed else Origin.ANALYTICAL for k in kernels),
        )
