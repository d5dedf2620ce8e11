"""Fidelity `simulated`: products and convolutions on a TPU's systolic arrays, cycle by cycle.

A product of `count` times M x K by K x N is spread over the device's arrays: whole members of the batch first, then M and N
halved as often as arrays are left; of all such cuts, and of streaming M past N or N past M, the one with the fewest cycles is
taken. Weights stay in the cells (`ws`), as in a TPU. What a convolution or a grouped product is: `estimate.products`.

`compute = cycles / clock x passes`, where `passes` is the arrays' own rate over the peak of the type: f32 takes several bf16
passes, i8 half of one.
`memory = traffic / bandwidth`, what copies reach of it: half of the vector memory holds a square of accumulators while the
other half is filled, so
M x K is read once for every `side = sqrt(vmem / 2 / 4 B)` columns and K x N once for every `side` rows; what the kernel's
fused ops move comes on top. Both overlap, and the array stalls where memory takes longer: `time = max(compute, memory)`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshcast.estimate.energy import joules_per_byte, joules_per_flop
from meshcast.estimate.estimator import Array, Estimates, Origin, Support, limiting
from meshcast.estimate.explanation import Explanation, Term
from meshcast.estimate.outside import DEFAULT_SIMULATOR, LayerSimulator
from meshcast.estimate.products import ArrayProduct, product_of
from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.roofline import interval_parameters
from meshcast.estimate.support import arithmetic_support
from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray, simulate
from meshcast.estimate.systolic.cycles import compute_cycles
from meshcast.estimate.systolic.files import WORDS_PER_KB
from meshcast.estimate.tpu.machine import TpuMachine
from meshcast.estimate.tpu.parameters import shipped_tpu_calibration
from meshcast.hardware import Device, TensorCores
from meshcast.lower import Kernel

ACCUMULATOR_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The share of a kernel that the busiest array gets: `count` times a layer."""

    count: int
    layer: Layer


def array_of(cores: TensorCores) -> SystolicArray:
    """One of a device's arrays with its share of the vector memory, a third for each operand and the outputs."""
    share = cores.vmem_bytes // cores.arrays // 3 // WORDS_PER_KB
    buffer = ArrayBuffer(words=max(1, share) * WORDS_PER_KB, bandwidth=cores.array_columns)
    return SystolicArray(
        rows=cores.array_rows, columns=cores.array_columns, dataflow="ws", ifmap=buffer, filter=buffer, ofmap=buffer,
        estimated_bandwidth=True,
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def spread(product: ArrayProduct, arrays: int, array: SystolicArray) -> Spread:
    """The cut of a product over arrays with the fewest cycles; see the module."""
    members = math.gcd(arrays, product.count) if product.count < arrays else arrays
    left = arrays // members
    cuts = [(rows, left // rows) for rows in range(1, left + 1) if left % rows == 0]
    found = []
    for (rows, columns), swapped in itertools.product(cuts, (False, True)):
        sides = -(-product.m // rows), -(-product.n // columns)
        found.append(sides[::-1] if swapped else sides)
    m, n = np.array(found, dtype=np.int64).T
    cycles = compute_cycles(m, n, np.full(len(m), product.k, dtype=np.int64), array)
    best = int(np.argmin(cycles))
    layer = Layer.gemm(int(m[best]), int(n[best]), product.k)
    return Spread(count=-(-product.count // members), layer=layer)


def traffic(product: ArrayProduct, kernel: Kernel, cores: TensorCores) -> float:
    """Bytes between memory and vector memory: what the kernel moves once, and operands that are read again."""
    side = math.sqrt(cores.vmem_bytes / 2 / ACCUMULATOR_BYTES)
    left, right = product.left, product.right
    again = left * (math.ceil(product.n / side) - 1) + right * (math.ceil(product.m / side) - 1)
    moved = kernel.read_bytes + kernel.written_bytes
    # Windows of a convolution are made from a map that is read once: the share of a word read again is the kernel's own.
    return moved + kernel.read_bytes * again / (left + right)


class Simulated:
    """Fidelity `simulated`; by default with our own model of the array."""

    fidelity = "simulated"

    def __init__(self, name: str = DEFAULT_SIMULATOR, simulator: LayerSimulator = simulate) -> None:
        self.name = name
        self._simulator = simulator

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Products and convolutions on devices with systolic arrays."""
        if device.tensor_cores is None:
            return Support(level="no", reason=f"{device.name} has no systolic arrays")
        support = arithmetic_support(kernel, device)
        if support.level != "no" and product_of(kernel.geometry) is None:
            return Support(level="no", reason="not a product or a convolution")
        return support

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times of products and convolutions; equal layers are simulated once."""
        if not kernels:  # also of devices without arrays, which have no kernels to ask about
            none = np.zeros(0)
            return Estimates(
                time=none, low=none, high=none, compute_time=none, memory_time=none, overhead=none, energy=none, origin=()
            )  # fmt: skip
        column = functools.partial(np.fromiter, dtype=np.float64, count=len(kernels))
        cores = _cores(device)
        products = [_product(kernel) for kernel in kernels]
        cycles = self._cycles(products, cores)
        compute: Array = column(
            count * _passes(kernel, device) / device.clock_hz for count, kernel in zip(cycles, kernels, strict=True)
        )
        moved: Array = column(traffic(p, k, cores) for p, k in zip(products, kernels, strict=True))
        memory = moved / reached_bandwidth(device)
        time = np.maximum(compute, memory)
        flops: Array = column(k.matrix_flops for k in kernels)
        rates = [matrix_rate(k, device) for k in kernels]
        light = np.maximum(
            flops / column(rate.flops for rate in rates),
            column(k.read_bytes + k.written_bytes for k in kernels) / device.memory_bandwidth,
        )
        factor, launches = interval_parameters()
        energy: Array = column(joules_per_flop(device, rate.key, rate.flops) for rate in rates)
        return Estimates(
            time=time,
            low=np.minimum(light, time),
            high=time * factor + launches * device.launch_latency_s,
            compute_time=compute,
            memory_time=memory,
            overhead=np.zeros(len(kernels)),
            energy=flops * energy + moved * joules_per_byte(device),
            origin=(Origin.SIMULATED,) * len(kernels),
        )

    def _cycles(self, products: Sequence[ArrayProduct], cores: TensorCores) -> list[int]:
        """Cycles of products, each spread over all arrays."""
        array = array_of(cores)
        spreads = [spread(product, cores.arrays, array) for product in products]
        unique = list(dict.fromkeys(each.layer for each in spreads))
        results = dict(zip(unique, self._simulator(unique, array), strict=True))
        # A layer's cycles are numbered from 0.
        return [each.count * (results[each.layer].total_cycles + 1) for each in spreads]

    def explain(self, kernel: Kernel, device: Device) -> Explanation:
        """The layer of one array, its cycles, and the traffic beside it."""
        cores, product = _cores(device), _product(kernel)
        share = spread(product, cores.arrays, array_of(cores))
        answer = self.estimate([kernel], device)
        compute, memory, time = (float(c[0]) for c in (answer.compute_time, answer.memory_time, answer.time))
        return Explanation(
            estimator=self.name,
            model=f"{cores.arrays} arrays of {cores.array_rows} x {cores.array_columns} cells, weights stay",
            formula="t = max(cycles / clock x passes, traffic / W)",
            terms=(
                Term("products of an array", "count", share.count),
                Term("its rows streamed", "M", share.layer.m),
                Term("its columns", "N", share.layer.n),
                Term("summed over", "K", share.layer.k),
                Term("cycles of an array", "cycles", self._cycles([product], cores)[0]),
                Term("clock", "clock", device.clock_hz, "Hz"),
                Term("passes", "passes", _passes(kernel, device)),
                Term("arrays' time", "compute", compute, "s"),
                Term("traffic", "B", traffic(product, kernel, cores), "B"),
                Term("bandwidth that copies reach", "W", reached_bandwidth(device), "B/s"),
                Term("memory's time", "mem = B/W", memory, "s"),
            ),
            time=time,
            limited_by=limiting(compute, memory, 0.0),
        )


def reached_bandwidth(device: Device) -> float:
    """Bytes per second that copies between memory and VMEM reach: a measured share of the data sheet's (`data/tpu.toml`)."""
    return TpuMachine(device=device, parameters=shipped_tpu_calibration().parameters).bandwidth


def _cores(device: Device) -> TensorCores:
    assert device.tensor_cores is not None  # see `supports`
    return device.tensor_cores


def _product(kernel: Kernel) -> ArrayProduct:
    found = product_of(kernel.geometry)
    assert found is not None  # see `supports`
    return found


def _passes(kernel: Kernel, device: Device) -> float:
    """Clocks that a multiply-add of the kernel's type takes in a cell."""
    cores = _cores(device)
    own = 2.0 * cores.array_rows * cores.array_columns * cores.arrays * device.clock_hz
    return own / matrix_rate(kernel, device).flops
