"""Fidelity `analytical` on NPUs: products in arrays of cells, everything else in the periphery.

`t = launch + max(clocks / clock, periphery, memory)`: while the array works on one part of a result, the periphery converts and
stores another, and the memory beside it is read ahead. The periphery computes what a kernel's other ops ask for, and products of
numbers that cells do not hold. Bytes move at the rate of the memory beside the array where a kernel's fit there, and
of a batch of images, which runs in parts that do, the weights written into the cells for each (`image_batches`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from meshcast.estimate.cells.energy import energy_by_part
from meshcast.estimate.cells.mapping import mapped
from meshcast.estimate.estimator import Array, Estimates, Origin, ProductFloor, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.image_batches import parts_of_batch
from meshcast.estimate.rates import vector_rate
from meshcast.estimate.roofline import interval_parameters, light_bounds
from meshcast.estimate.support import arithmetic_support
from meshcast.hardware import Device
from meshcast.lower import Kernel


class CellsAnalytical:
    """The model of devices with arrays of cells."""

    name = "analytical"
    fidelity = "analytical"
    by_kernel = True
    by_arithmetic = True

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """All kernels on NPUs whose file has their arrays."""
        if device.cells is None:
            return Support(level="no", reason=f"{device.name} says nothing about its arrays of cells")
        return arithmetic_support(kernel, device)

    def product_floor(self, device: Device) -> ProductFloor:
        """See `estimate.least`."""
        return "core_time"

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times, intervals and energies of kernels."""
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        compute: Array = column(_compute(kernel, device) for kernel in kernels)
        light, memory = light_bounds(kernels, device)
        compute = np.maximum(compute, light)
        overhead = np.full(len(kernels), device.launch_latency_s)
        time = overhead + np.maximum(compute, memory)
        factor, launches = interval_parameters()
        return Estimates(
            time=time,
            low=np.minimum(np.maximum(light, memory), time),
            high=time * factor + launches * device.launch_latency_s,
            compute_time=compute,
            memory_time=memory,
            overhead=overhead,
            energy=column(sum(energy_by_part(kernel, device).values()) for kernel in kernels),
            origin=tuple(Origin.GUESSED if kernel.guessed else Origin.ANALYTICAL for kernel in kernels),
        )

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The array's clocks, and the joules of every part."""
        answer = self.estimate([kernel], device)
        compute, memory, overhead = (
            float(each[0]) for each in (answer.compute_time, answer.memory_time, answer.overhead)
        )
        found, terms = mapped(kernel, device), []
        if found is not None:
            terms = [
                Term("rows streamed", "M", found.product.m),
                Term("columns", "N", found.product.n),
                Term("summed over", "K", found.product.k),
                Term("bits of a weight", "w", found.weight_bits),
                Term("bits of an activation", "a", found.activation_bits),
                Term("columns of a weight", "slices", found.slices),
                Term("steps of a vector", "steps", found.steps),
                Term("tiles", "tiles", found.tiles),
                Term("clocks for weights", "load", found.load_clocks),
                Term("clocks", "clocks", found.clocks),
                Term("clock", "clock", device.clock_hz, "Hz"),
            ]
        terms += [
            Term("array and periphery", "compute", compute, "s"),
            Term("memory's time", "mem", memory, "s"),
            Term("launch", "launch", overhead, "s"),
            *(Term(f"energy of {part}", "E", joules, "J") for part, joules in energy_by_part(kernel, device).items()),
        ]  # fmt: skip
        return Explanation(
            estimator=self.name,
            model="arrays of cells" if found is not None else "periphery",
            formula="t = launch + max(compute, mem)",
            terms=tuple(terms),
            time=float(answer.time[0]),
            limited_by=limiting(compute, memory, overhead),
        )


def _compute(kernel: Kernel, device: Device) -> float:
    """Seconds of the array or the periphery, whichever is busy longer."""
    found = mapped(kernel, device)
    rate = vector_rate(kernel.dtype, device)
    if found is None:
        return (kernel.vector_flops + kernel.matrix_flops) / rate
    clocks = found.clocks + (parts_of_batch(kernel, device) - 1) * found.load_clocks
    return max(clocks / device.clock_hz, kernel.vector_flops / rate)
