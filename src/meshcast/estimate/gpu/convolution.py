"""Convolutions: implicit GEMMs `(batch * out) x out_channels x (in_channels * kernel)`, as cuDNN runs them.

Forward, input and filter gradients all have that form in StableHLO's terms (a filter gradient convolves over batches).
Fewer than 8 channels run on kernels with narrow loads, depthwise convolutions on the CUDA cores. Transposes of filters
and uneven padding are kernels of their own, which the lowering makes (`lower.convolutions`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.tiles import Product, product_time
from meshcast.estimate.rates import matrix_rate
from meshcast.lower.kernel import Kernel
from meshcast.workload.graph import Convolution, element_bytes

FEW_CHANNELS = 8


def convolution(kernel: Kernel, machine: Machine) -> Work:
    """A convolution."""
    shape = kernel.geometry
    rate = matrix_rate(kernel, machine.device)
    if not isinstance(shape, Convolution):
        products = kernel.matrix_flops / rate.flops
        terms = machine.named(("products at peak", "mma", products, "s"), ("launch", "launch", machine.launch, "s"))
        return Work(time=machine.launch + products, formula="t = launch + mma", terms=terms)
    p = machine.parameters
    joules = matrix_joules(kernel.matrix_flops, rate, machine.device)
    groups = max(shape.feature_groups, shape.batch_groups)
    if groups > 1 and _per_group(shape) < FEW_CHANNELS:
        return _depthwise(kernel, shape, machine)
    element = element_bytes(shape.lhs_dtype)
    taps = math.prod(shape.kernel)
    # A filter's gradient is written with channels and batch exchanged: its window is the image, its result the filter.
    gradient = math.prod(shape.kernel) > math.prod(shape.out_spatial)
    channels = shape.batch if gradient else shape.in_channels // shape.feature_groups
    few = channels < FEW_CHANNELS <= shape.out_channels
    # Dilated inputs (gradients of strided convolutions) multiply by zeros that `macs` leaves out: cuDNN skips them too.
    dense = max(
        1.0, shape.batch * math.prod(shape.out_spatial) * shape.out_channels * shape.in_channels / groups * taps
    )
    product = Product(
        batch=groups,
        m=shape.batch * math.prod(shape.out_spatial) / (groups if shape.batch_groups > 1 else 1),
        n=shape.out_channels / (groups if shape.feature_groups > 1 else 1),
        k=max(1.0, shape.in_channels / groups * taps * min(1.0, shape.macs / dense)),
        width=element,
        read=kernel.read_bytes,
        written=kernel.written_bytes,
        recency=kernel.recency,
        peak=rate.flops * (p.conv_few_channels if few else p.conv_share if taps > 1 else 1.0),
    )
    return replace(product_time(product, machine), matrix_joules=joules)


def _per_group(shape: Convolution) -> float:
    return min(
        shape.in_channels / shape.feature_groups, shape.out_channels / max(shape.feature_groups, shape.batch_groups)
    )


def _depthwise(kernel: Kernel, shape: Convolution, machine: Machine) -> Work:
    """One input channel per group: no reuse for tensor cores, multiply-adds on the CUDA cores."""
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    issued = shape.macs * machine.parameters.depthwise_instructions
    compute = issued / machine.instruction_rate
    time = 2 * machine.launch + machine.overlapped(moved.seconds, compute)
    return Work(
        time=time,
        compute=compute,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = 2 launch + |mem, issue|_p",
        terms=(
            *moved.terms,
            *machine.named(
                *machine.issuing(issued, compute),
                ("launch", "launch", machine.launch, "s"),
                ("norm of what overlaps", "p", machine.parameters.overlap, ""),
            ),
        ),
    )
