"""Convolutions by Fourier transforms: what cuDNN takes in f32 where a filter is as large as an image.

Input and filter are padded to `n x n`, n the next power of two, transformed, multiplied frequency by frequency, and the product
is transformed back (Mathieu, Henaff and LeCun 2013; cuDNN's `CUDNN_CONVOLUTION_FWD_ALGO_FFT`). With b images, c channels summed
and o results, and `f = n (n/2 + 1)` frequencies of 8 bytes,

    t = n launch + turned(x, w) + rows(b c + c o) + columns(b c + c o) + 8 f b' c o' / P + columns(b o) + rows(b o),

where P is a share of the CUDA cores' rate, `b'` and `o'` are at least 16, what the products' tiles hold, `rows` reads numbers and
writes frequencies (or the other way round) at a share of memory's rate, and `columns` reads and writes them, by a kernel that
only sides beyond 64 have. Input and filter lie with channels last, and are turned for it; the result is small where a filter
is an image. Of the n kernels those before the products run once for the input and once for the filter.

On an H200 the products of thirteen such calls ran at 11 to 19 TFLOP/s, rows at 0.35 of the memory's rate
(`data/measured/h200-transposed`, the part that was looked at, and an autoencoder of Keras).
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import NARROWEST, Kernel, spectra_bytes, spectral_side
from meshcast.workload import Convolution

AT_ONCE = 64  # the largest side whose rows and columns one kernel transforms


def spectral_convolution(kernel: Kernel, shape: Convolution, machine: GpuMachine) -> GpuWork | None:
    """A convolution by transforms of its input, its filter and its result; None where cuDNN has none for it."""
    side = spectral_side(shape)
    if side is None:
        return None
    p = machine.parameters
    frequencies = side * (side // 2 + 1)
    there, back = spectra_bytes(shape, side)
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
