"""Convolutions by Fourier transforms: what cuDNN takes in f32 where a filter is as large as an image.

Input and filter are padded to `n x n`, n the next power of two, transformed, multiplied frequency by frequency, and the product
is transformed back (Mathieu, Henaff and LeCun 2013; cuDNN's `CUDNN_CONVOLUTION_FWD_ALGO_FFT`). With b images, c channels summed
and o results, and `f = n (n/2 + 1)` frequencies of 8 bytes,

    t = moved(images) + rows(b c + c o) + columns(b c + c o) + 8 f b c o / P + columns(b o) + rows(b o),

where P is a share of the CUDA cores' rate, `rows` reads numbers and writes frequencies at a share of memory's rate, and
`columns`, a second kernel beyond 64 x 64, reads and writes them. Images come and go with channels last, and are turned for it.

On an H200 the products of thirteen such calls ran at 11 to 19 TFLOP/s, rows at 0.35 of the memory's rate
(`data/measured/h200-transposed`, the part that was looked at, and an autoencoder of Keras).
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import Kernel
from meshcast.workload import Convolution, element_bytes

SIDES = (
    16,
    32,
    64,
    128,
    256,
)  # that cuDNN has kernels for: fft2d_r2c_16x16 to 64x64, and regular_fft_pad of 128 and 256
AT_ONCE = 64  # the largest side whose rows and columns one kernel transforms
NARROWEST = 16  # images and results that the products pad fewer to
FREQUENCY_BYTES = 8


def spectral_side(shape: Convolution) -> int | None:
    """The side of the transforms; None where there are none: the image is too large, not a plane, or has holes."""
    steps = (*shape.strides, *shape.lhs_dilation, *shape.rhs_dilation)
    if len(shape.kernel) != 2 or max(steps) > 1 or element_bytes(shape.lhs_dtype) != 4:
        return None
    padded = max(size + low + high for size, (low, high) in zip(shape.in_spatial, shape.padding, strict=True))
    return next((side for side in SIDES if side >= padded), None)


def spectral_convolution(kernel: Kernel, shape: Convolution, machine: GpuMachine) -> GpuWork | None:
    """A convolution by transforms of its input, its filter and its result; None where cuDNN has none for it."""
    side = spectral_side(shape)
    if side is None:
        return None
    p = machine.parameters
    frequencies = side * (side // 2 + 1)
    there = (shape.batch * shape.in_channels + shape.in_channels * shape.out_channels) * frequencies * FREQUENCY_BYTES
    back = shape.batch * shape.out_channels * frequencies * FREQUENCY_BYTES
    passes = [
        (traffic(kernel.read_bytes, kernel.read_bytes, machine), 1.0),
        (traffic(kernel.read_bytes, there, machine), p.spectral_rows),
        (traffic(back, kernel.written_bytes, machine), p.spectral_rows),
    ]
    if side > AT_ONCE:
        passes += [(traffic(there, there, machine), 1.0), (traffic(back, back, machine), 1.0)]
    memory = sum(moved.seconds / share for moved, share in passes)
    wide = max(NARROWEST, shape.batch) * max(NARROWEST, shape.out_channels)
    flops = 8.0 * frequencies * shape.in_channels * wide
    products = flops / (machine.device.vector_flops["f32"] * machine.boost * p.spectral_products)
    fixed = machine.launch * (len(passes) + math.ceil(len(passes) / 2))  # input and filter are transformed apart
    return GpuWork(
        time=fixed + memory + products,
        compute=products,
        fixed=fixed,
        memory=memory,
        dram_bytes=sum(moved.dram_bytes for moved, _ in passes),
        instructions=flops / 2,
        formula="t = n launch + mem + products",
        terms=machine.named(
            ("side of the transforms", "side", side, ""),
            ("passes over spectra", "mem", memory, "s"),
            ("products of frequencies", "products", products, "s"),
            ("launch", "launch", machine.launch, "s"),
        ),
    )
