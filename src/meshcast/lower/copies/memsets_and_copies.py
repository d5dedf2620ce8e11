"""Small kernels around library calls and updates: memsets and plain copies."""

from __future__ import annotations

import math

from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.workload import Convolution, Gemm, Tensor, element_bytes

# Persistent kernels of cuBLAS and cuDNN take tiles from a counter once there are more than two waves of them, and that
# is cleared first. Products run on tiles of 256 x 128 then, convolutions on 128 x 128; a wave is a Hopper's 132 SMs.
WAVES = 2 * 132
_PRODUCT_TILE = 256 * 128
_CONVOLUTION_TILE = 128 * 128
DIRECT_BYTES = 16  # that implicit products load at once


def clears_first(kernel: Kernel) -> bool:
    """Whether a library call is preceded by a memset of its tile counter."""
    shape = kernel.geometry
    if kernel.kind is KernelKind.GEMM and isinstance(shape, Gemm):
        alone = not kernel.vector_flops  # with an epilogue it is XLA's own Triton kernel
        return alone and shape.batch * shape.m * shape.n > WAVES * _PRODUCT_TILE
    if (
        isinstance(shape, Convolution) and math.prod(shape.kernel) > 1 and not _of_few_channels(shape)
    ):  # 1 x 1: a GEMM kernel
        results = shape.batch * shape.out_channels * math.prod(shape.out_spatial)
        return results > WAVES * _CONVOLUTION_TILE
    return False


def _of_few_channels(shape: Convolution) -> bool:
    """Whether groups are so narrow that a direct kernel runs, which counts no tiles: a pixel's channels are no 16 bytes.

    Of 98 such calls that are large enough on an H200 4 clear something.
    """
    channels = shape.in_channels // shape.feature_groups
    return shape.feature_groups > 1 and channels * element_bytes(shape.lhs_dtype) % DIRECT_BYTES != 0


def memset(call: Kernel) -> Kernel:
    """The memset before a library call."""
    return Kernel(
        name="memset", kind=KernelKind.LOOP_FUSION, dtype="i32", written_bytes=4, elements=1, location=call.location
    )


def copy_kernel(source: int, target: int, tensor: Tensor, location: str) -> Kernel:
    """A copy of a whole buffer."""
    return Kernel(
        name="copy",
        kind=KernelKind.LOOP_FUSION,
        dtype=tensor.dtype,
        read_bytes=tensor.bytes,
        written_bytes=tensor.bytes,
        reads=(source,),
        operand_bytes=(tensor.bytes,),
        writes=(target,),
        elements=tensor.elements,
        flags=frozenset({"copy"}),
        ops=("copy",),
        location=location,
    )
