"""Times that a compiler gives its own kernels: the TPU compiler's cycles of products and convolutions.

`time = max(cycles / clock, bytes / (share * bandwidth))`. The cycles of a fusion around the matrix units come from the
tiles that the compiler chose, their passes, and the copies between them; its cost model takes the memory at its nominal
rate, of which copies reach a `share` (`data/tpu_compiler.toml`). What the compiler says of kernels without a product is
only good for ranking ways to tile them: an addition of 2**28 elements, which the memory bounds, gets four times the
cycles that it takes. Such kernels are left to the next estimator.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from meshcast.estimate.energy import joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array, Estimates, Origin, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.rates import matrix_rate
from meshcast.hardware import Device
from meshcast.lower.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameters:
    share: float  # of the memory's nominal bandwidth that streams of tiles reach
    low: float  # measured over predicted, 5th and 95th percentile
    high: float


@functools.cache
def _parameters() -> _Parameters:
    text = resources.files("meshcast.estimate").joinpath("data/tpu_compiler.toml").read_text()
    data = tomllib.loads(text)
    return _Parameters(share=data["memory"]["share"], low=data["interval"]["low"], high=data["interval"]["high"])


class CompilerCycles:
    """Fidelity `compiled`, for kernels that come with cycles."""

    name = "compiled"
    fidelity = "compiled"

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Products and convolutions that the compiler gave cycles."""
        if kernel.cycles is None:
            return Support(level="no", reason="the compiler gives no cycles for it")
        if not kernel.matrix_flops:
            return Support(level="no", reason="the compiler's cycles of kernels without a product are no prediction")
        return Support(level="yes")

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The two terms of the time."""
        answer = self.estimate([kernel], device)
        compute, memory = float(answer.compute_time[0]), float(answer.memory_time[0])
        assert kernel.cycles is not None
        return Explanation(
            estimator=self.name,
            model="the compiler's cycles",
            formula="t = max(C/f, B/(s W))",
            terms=(
                Term("cycles by the compiler", "C", kernel.cycles),
                Term("clock", "f", device.clock_hz, "Hz"),
                Term("the compiler's time", "C/f", compute, "s"),
                Term("bytes to and from memory", "B", kernel.read_bytes + kernel.written_bytes, "B"),
                Term("bandwidth", "W", device.memory_bandwidth, "B/s"),
                Term("share of it that is reached", "s", _parameters().share),
                Term("traffic", "B/(s W)", memory, "s"),
            ),
            time=float(answer.time[0]),
            limited_by=limiting(compute, memory, 0.0),
        )

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """The compiler's times, or the memory's where they are longer."""
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        parameters = _parameters()
        compute: Array = column(kernel.cycles or 0.0 for kernel in kernels) / device.clock_hz
        moved: Array = column(kernel.read_bytes + kernel.written_bytes for kernel in kernels)
        memory = moved / (parameters.share * device.memory_bandwidth)
        time = np.maximum(compute, memory)
        rates = [matrix_rate(kernel, device) for kernel in kernels]
        flops: Array = column(kernel.matrix_flops for kernel in kernels)
        energy: Array = column(joules_per_flop(device, rate.key, rate.flops) for rate in rates)
        return Estimates(
            time=time,
            low=time * parameters.low,
            high=time * parameters.high,
            compute_time=compute,
            memory_time=memory,
            overhead=np.zeros(len(kernels)),
            energy=flops * energy + moved * joules_per_byte(device),
            origin=(Origin.ANALYTICAL,) * len(kernels),
        )
