"""Convolutions as products of their windows (implicit GEMMs): operands gathered by taps, K in whole steps of channels."""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.gpu.clocks import matrix_joules
from meshcast.estimate.gpu.convolution import WINOGRAD, as_unit_takes, by_winograd, implicit_gemm
from meshcast.estimate.gpu.gemm import with_widened_tiles
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.products import STEP_BYTES, TileJob, packed_product
from meshcast.estimate.rates import matrix_rate
from meshcast.lower import Kernel, is_filter_gradient_call
from meshcast.workload import Convolution


def convolution(kernel: Kernel, chip: Chip, machine: GpuMachine) -> GpuWork:
    """A convolution without groups; a filter of one element without strides is a plain product."""
    shape, rate = kernel.geometry, matrix_rate(kernel, machine.device)
    assert isinstance(shape, Convolution)  # see `GpuSimulated.supports`
    gradient = is_filter_gradient_call(shape)
    share = WINOGRAD if not rate.on_tensor_cores and by_winograd(shape, gradient=gradient) else 1.0
    tiled = implicit_gemm(kernel, shape, peak=rate.flops * share, gradient=gradient)
    stepped = tiled = as_unit_takes(tiled, kernel, shape, rate)
    taps = math.prod(shape.out_spatial if gradient else shape.kernel)
    plain = taps == 1 and max(*shape.strides, *shape.lhs_dilation, 1) == 1
    if not plain and not gradient:
        step = STEP_BYTES / tiled.width
        channels = shape.in_channels
        stepped = replace(tiled, k=tiled.k * math.ceil(channels / step) * step / channels)
    work = packed_product(TileJob(product=stepped, gathered=not plain, filled=tiled.k / stepped.k), chip, machine)
    work = with_widened_tiles(work, tiled, shape, rate, machine)
    return replace(work, matrix_joules=matrix_joules(kernel.matrix_flops, rate, machine.device))
