"""What cuDNN's implicit GEMMs take that a plain product of their size does not, beside the taps that they gather.

A call. Filters of more than one element, and strided or dilated calls, run on cuDNN's own kernels, and not on cuBLAS's as the
rest do: a workspace is cleared, the kernel works out where its pixels lie before its first tile, its results pass through shared
memory behind its last, and some calls convert an operand or add up parts beside. On an H200 that is some 3 us, whatever the call
does, forward and both gradients alike (`convolution_start_cycles`).

TF32. Units for matrices read numbers of 4 bytes from shared memory where they lie along K (PTX ISA, `wgmma`: no transposed
operands but of 16 bits). In NHWC so do the channels of a forward call and of a gradient by the input: a step takes
`tf32_step_cycles` beside, as in products, and gathering taps hides behind that. The sum of a gradient by the filter goes over
pixels, across both operands: single warps multiply (`warp_products` of the peak, where warp groups could do better), and load
number by number what their part of the tile needs. Of a tile of `bm x bn` eight warps have a part each, two rows of four; each of
the `bm` rows is loaded by four warps, each of the `bn` columns by two. A load of a warp is 32 numbers, as many as a step has of a
row, so that a step takes `4 bm + 2 bn` cycles of shared memory, or the other way round: three for each row and column. cuBLAS's
kernels for filters of one element (`cutlass_80_tensorop_s1688gemm_..._nt`) do likewise.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.tile_ways import TiledProduct
from meshcast.estimate.rates import Rate
from meshcast.lower import is_filter_gradient_call
from meshcast.workload import Convolution

LOADED_BY = 3.0  # warps that load a row or a column of a tile, of two rows of four: (4 + 2) / 2


def is_plain_product(shape: Convolution) -> bool:
    """Whether cuBLAS's kernels do: a filter of one element without strides or dilation, or its gradient."""
    taps = math.prod(shape.out_spatial if is_filter_gradient_call(shape) else shape.kernel)
    return taps == 1 and max((*shape.strides, *shape.lhs_dilation, *shape.rhs_dilation), default=1) == 1


def with_start(work: GpuWork, shape: Convolution, machine: GpuMachine) -> GpuWork:
    """A call with what cuDNN's own kernels take before their first tile and behind their last."""
    if is_plain_product(shape):
        return work
    seconds = machine.parameters.convolution_start_cycles / machine.clock
    return replace(
        work,
        time=work.time + seconds,
        fixed=work.overhead + seconds,
        formula=f"{work.formula} + call",
        terms=(*work.terms, *machine.named(("a call of cuDNN's own kernels", "call", seconds, "s"))),
    )


def in_tf32(product: TiledProduct, shape: Convolution, rate: Rate, machine: GpuMachine) -> TiledProduct:
    """The product with the cycles that its steps take beside, where its numbers are 4 bytes that the units round."""
    p = machine.parameters
    if rate.type != "tf32":
        return product
    if not is_filter_gradient_call(shape):
        return replace(product, chained=p.tf32_step_cycles)
    warps = p.warp_products if machine.generation.clusters else 1.0
    return replace(product, peak=rate.flops * warps, chained=p.tf32_step_cycles, carried=LOADED_BY)
