"""Times that a compiler gives its own kernels: the TPU compiler's cycles of products, convolutions, and copies between layouts.

`time = max(cycles / clock, FLOPs / peak, bytes / (share * bandwidth))`. The cycles of a fusion around the matrix units come
from the tiles that the compiler chose, their passes, and the copies between them. Its cost model takes the memory at its
nominal rate, of which copies reach a `share` (`estimate.tpu`), and forgets passes where a product's result is summed up
at once, so that light is the limit. What the compiler says of kernels without a product is only good for ranking ways to
tile them: an addition of 2**28 elements, which the memory bounds, gets four times the cycles that it takes. Such kernels
are left to the next estimator.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from meshcast.estimate.energy import joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array, Estimates, Origin, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.tpu.machine import TpuMachine
from meshcast.estimate.tpu.parameters import TPU_COMPILER, shipped_tpu_calibration
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind


def machine(device: Device) -> TpuMachine:
    """The device with the analytical model's calibration."""
    return TpuMachine(device=device, parameters=shipped_tpu_calibration().parameters)


class CompilerCycles:
    """Fidelity `compiled`, for kernels that come with cycles."""

    name = "compiled"
    fidelity = "compiled"

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Products, convolutions and copies between layouts that the compiler gave cycles."""
        if device.tensor_cores is None:
            return Support(level="no", reason=f"{device.name} is no TPU")
        if kernel.cycles is None:
            return Support(level="no", reason="the compiler gives no cycles for it")
        if not kernel.matrix_flops and kernel.kind is not KernelKind.TRANSPOSE:
            return Support(level="no", reason="the compiler's cycles of loops and reductions are no prediction")
        return Support(level="yes")

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The two terms of the time."""
        answer = self.estimate([kernel], device)
        compute, memory = float(answer.compute_time[0]), float(answer.memory_time[0])
        assert kernel.cycles is not None
        return Explanation(
            estimator=self.name,
            model="the compiler's cycles",
            formula="t = max(C/f, F/P, B/W)",
            terms=(
                Term("cycles by the compiler", "C", kernel.cycles),
                Term("clock", "f", device.clock_hz, "Hz"),
                Term("the compiler's time", "C/f", kernel.cycles / device.clock_hz, "s"),
                Term("matrix FLOPs", "F", kernel.matrix_flops, "FLOP"),
                Term("dense peak", "P", matrix_rate(kernel, device).flops, "FLOP/s"),
                Term("bytes to and from memory", "B", kernel.read_bytes + kernel.written_bytes, "B"),
                Term("bandwidth that copies reach", "W", machine(device).bandwidth, "B/s"),
                Term("traffic", "B/W", memory, "s"),
            ),
            time=float(answer.time[0]),
            limited_by=limiting(compute, memory, 0.0),
        )

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """The compiler's times, or the memory's where they are longer."""
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        low, high = shipped_tpu_calibration().interval(TPU_COMPILER)
        rates = [matrix_rate(kernel, device) for kernel in kernels]
        flops: Array = column(kernel.matrix_flops for kernel in kernels)
        cycles: Array = column(kernel.cycles or 0.0 for kernel in kernels)
        compute = np.maximum(cycles / device.clock_hz, flops / column(rate.flops for rate in rates))
        moved: Array = column(kernel.read_bytes + kernel.written_bytes for kernel in kernels)
        memory = moved / machine(device).bandwidth
        time = np.maximum(compute, memory)
        energy: Array = column(joules_per_flop(device, rate.key, rate.flops) for rate in rates)
        return Estimates(
            time=time,
            low=time * low,
            high=time * high,
            compute_time=compute,
            memory_time=memory,
            overhead=np.zeros(len(kernels)),
            energy=flops * energy + moved * joules_per_byte(device),
            origin=(Origin.ANALYTICAL,) * len(kernels),
        )
