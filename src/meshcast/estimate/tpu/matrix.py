"""Products and convolutions: passes of a systolic array with padding, loading of weights, results, and what is fused in.

A tile of one operand, `rows x columns`, is held in an array while rows of the other stream through it, one a clock:

    cycles = batch * ceil(K / rows) * ceil(held / columns) * max(streamed, load) / arrays

where `load` is what bringing the next tile in costs, in rows. The compiler holds whichever operand makes this less.
Taps of a convolution lie along K; a filter's gradient is a product whose K is batch and space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.tpu.machine import Machine, Work
from meshcast.lower.kernel import Kernel
from meshcast.workload.graph import Attention, Convolution, Gemm


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`batch` products of M x K and K x N."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def results(self) -> int:
        """Elements that come out."""
        return self.batch * self.m * self.n


def as_product(geometry: Gemm | Convolution) -> Product:
    """The product that the arrays see; a convolution's taps are those that do not fall on padding, on average."""
    if isinstance(geometry, Gemm):
        return Product(batch=geometry.batch, m=geometry.m, n=geometry.n, k=geometry.k)
    groups = geometry.feature_groups * geometry.batch_groups
    m = geometry.batch * math.prod(geometry.out_spatial)
    n = max(1, geometry.out_channels // groups)
    return Product(batch=groups, m=m, n=n, k=max(1, round(geometry.macs / (groups * m * n))))


def array_cycles(product: Product, machine: Machine) -> float:
    """Cycles of all arrays together on bf16 operands, the better operand held."""
    cores, load = machine.cores, machine.parameters.load_rows
    deep = product.batch * math.ceil(product.k / cores.array_rows)
    sublanes = cores.sublanes

    def streaming(streamed: int, held: int) -> float:
        rows = math.ceil(streamed / sublanes) * sublanes
        return deep * math.ceil(held / cores.array_columns) * max(rows, load) / cores.arrays

    return min(streaming(product.m, product.n), streaming(product.n, product.m))


def product(kernel: Kernel, machine: Machine) -> Work:
    """A product or convolution with what is fused into it."""
    geometry, p = kernel.geometry, machine.parameters
    assert isinstance(geometry, Gemm | Convolution)
    if isinstance(geometry, Convolution) and geometry.feature_groups > 1 and _is_depthwise(geometry):
        return _depthwise(kernel, geometry, machine)
    sides = as_product(geometry)
    faster = matrix_rate(kernel, machine.device).flops / machine.device.matrix_peak("bf16")
    passes = array_cycles(sides, machine) / faster / machine.device.clock_hz
    results = machine.vectors(p.result_cycles, sides.results)
    vector = machine.arithmetic(kernel) + results
    if isinstance(geometry, Convolution) and geometry.in_channels < machine.cores.sublanes:
        vector += machine.vectors(p.pack_cycles, sides.m * sides.k)
    traffic = machine.traffic(kernel)
    return machine.work(
        traffic,
        (
            (
                "systolic arrays",
                "arrays",
                passes * (1 + p.array_loss),
            ),
            ("results and what is fused in", "vector", vector),
        ),
    )


def _is_depthwise(geometry: Convolution) -> bool:
    return geometry.in_channels == geometry.feature_groups


def _depthwise(kernel: Kernel, geometry: Convolution, machine: Machine) -> Work:
    """One channel a group leaves nothing to sum up in an array: the vector units do it."""
    macs = machine.vectors(machine.parameters.depthwise_cycles, geometry.macs)
    return machine.work(
        machine.traffic(kernel), (("multiply-adds on vectors", "vector", macs + machine.arithmetic(kernel)),)
    )


def attention(kernel: Kernel, machine: Machine) -> Work:
    """Fused attention: its products, and an exponential for each score, on blocks that stay in VMEM."""
    geometry, p = kernel.geometry, machine.parameters
    assert isinstance(geometry, Attention)
    scores = float(geometry.batch * geometry.heads * geometry.q_len * geometry.kv_len) * (
        0.5 if geometry.causal else 1.0
    )
    sides = Product(batch=geometry.batch * geometry.heads, m=geometry.q_len, n=geometry.kv_len, k=geometry.head_dim)
    products = 5 if geometry.backward else 2
    share = (0.5 if geometry.causal else 1.0) / p.attention_share
    passes = products * array_cycles(sides, machine) * share / machine.device.clock_hz
    vector = machine.vectors(p.function_cycles + p.op_cycles, scores)
    return machine.work(machine.traffic(kernel), (("systolic arrays", "arrays", passes), ("softmax", "vector", vector)))
