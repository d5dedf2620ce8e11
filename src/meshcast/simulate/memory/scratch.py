"""Memory that a kernel needs besides its operands and results: library workspaces, partial sums, transposed operands.

XLA gives every call of a library a workspace as a further result, alive while the call runs:
 - cuBLAS: 32 MiB from Hopper on, 4 MiB before (matmul_utils / gemm_rewriter.cc);
 - cuDNN attention, backward: dQ in f32 and a row sum per query;
 - cuDNN convolutions: what `lower/convolutions/cudnn_convolutions.py` pads there, other copies and partial sums
   (`convolution_workspaces.py`).
A product whose K is split has its partial sums, and copies of its operands where K has no equal parts
(`lower/products/split_k.py`); a product of bytes that are not K-major has a transposed copy, a small vector-matrix product its
single products. XLA's own sort works on its result; a stable one has the elements' places as a further result
(stable_sort_expander.cc). CUB's needs a second array for each that it sorts, and sorts floats by keys of whole numbers, which are
two more (sort_rewriter.cc).

Whether a product goes to cuBLAS or stays XLA's own Triton kernel is found out by timing both. What the ground truth shows
of it, and what is taken here: small products, few rows, and rows that are not a multiple of 16 bytes, stay with Triton; f32
(TF32) and 1-byte products go to cuBLAS; of the others those with a large result or a long K, where its clusters and
persistent tiles tell, and those whose 128 x 128 tiles leave SMs idle. Read off 81 measured products, it is right for 74.
Where nothing is timed (`tuned=False`, as with --xla_gpu_enable_triton_gemm=false) every product is cuBLAS's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.hardware import Device
from meshcast.lower import (
    SPLIT_TILE,
    Kernel,
    KernelKind,
    computes_operands,
    is_summed,
    is_tiny,
    padded_bytes,
    partial_bytes,
    sorted_by_radix,
    split_parts,
)
from meshcast.simulate.memory.convolution_workspaces import workspace_bytes
from meshcast.workload import DTYPE_BITS, Attention, Convolution, Gemm, SortGeometry, Tensor, element_bytes

WORKSPACE = 32 * 2**20  # bytes, of cuBLAS since Hopper
WORKSPACE_BEFORE = 4 * 2**20
FEW_ROWS = 64
SMALL_PRODUCT, SMALL_BYTE_PRODUCT = 2**29, 2**33  # multiply-adds; of 1-byte operands
SMALL_SPLIT_PRODUCT = 2**28  # of f32 whose K is split, so that its parts fill the SMs (those of two libraries)
LARGE_RESULT = 16_000_000  # elements
LONG_K, SHORT_K = 7000, 1000
# Of these cuBLAS wins over Triton even with an epilogue, which then is a kernel of its own (all 25 of FNet's; an H200).
SPLIT_FROM_EPILOGUE = "f32"
_PLACE = 4  # bytes
FILLED = 0.95  # share of the SMs that tiles keep busy


def scratch_bytes(kernel: Kernel, device: Device, *, tuned: bool = True) -> int:
    """Bytes that a kernel needs while it runs, beyond its operands and results."""
    if device.kind != "gpu":
        return 0
    match kernel.geometry:
        case Gemm() as shape if kernel.kind is KernelKind.GEMM:
            return _product(kernel, shape, device, tuned=tuned)
        case Attention() as shape if shape.backward:
            rows = shape.batch * shape.heads * shape.q_len
            return 4 * rows * (shape.head_dim + 1)
        case Convolution() as shape if kernel.kind is KernelKind.CONVOLUTION and device.vendor.lower() == "nvidia":
            return workspace_bytes(shape, device.cores)
        case SortGeometry(top=None) as shape:
            return _sort(kernel, shape)
    return 0


def _sort(kernel: Kernel, shape: SortGeometry) -> int:
    if not sorted_by_radix(shape, DTYPE_BITS.get(kernel.dtype, 32)):
        return shape.stable * _PLACE * shape.length * shape.batch
    of_floats = shape.operands == 1 and "f" in kernel.dtype
    return kernel.written_bytes * (4 if of_floats else 1)  # both arrays twice where keys are made for them


def is_library_call(kernel: Kernel, device: Device, *, tuned: bool = True) -> bool:
    """Whether a kernel is a library's: its result comes with a workspace, and nobody can be written over it."""
    if isinstance(kernel.geometry, Gemm):
        return calls_cublas(kernel, kernel.geometry, device, tuned=tuned)
    return isinstance(kernel.geometry, Convolution | Attention)


def kernel_needs(kernel: Kernel, device: Device, *, tuned: bool) -> tuple[int, bool]:
    """Bytes that a kernel needs besides its operands and results, and whether it is a library's."""
    return scratch_bytes(kernel, device, tuned=tuned), is_library_call(kernel, device, tuned=tuned)


def pads_operands(kernel: Kernel, device: Device, *, tuned: bool) -> bool:
    """Whether copies of a product's operands are among what it needs, padded along K as its parts want it."""
    shape = kernel.geometry
    if not tuned or kernel.kind is not KernelKind.GEMM or not isinstance(shape, Gemm) or device.kind != "gpu":
        return False
    return padded_bytes(shape, split_parts(shape, device.cores, device.architecture)) > 0


def padded_operands(kernel: Kernel, tensors: Sequence[Tensor]) -> list[int]:
    """The operands of such a product: they come before what its epilogue reads, which is as large as the result."""
    shape = kernel.geometry
    assert isinstance(shape, Gemm)
    sizes = {shape.batch * shape.k * side for side in (shape.m, shape.n)}
    return [value for value in dict.fromkeys(kernel.reads) if tensors[value].elements in sizes][:2]


def needs_as_compiled(kernel: Kernel, device: Device, *, tuned: bool) -> tuple[int, bool]:
    """The same of a compiler's kernel, whose scratch is among its results: products that it left to Triton are no library's."""
    return 0, not _left_to_triton(kernel) and is_library_call(kernel, device, tuned=tuned)


def needs_once_timed(kernel: Kernel, device: Device, *, tuned: bool) -> tuple[int, bool]:
    """The same where a GPU would time it: cuBLAS wins some of the products that XLA, without one, left to Triton."""
    library = is_library_call(kernel, device, tuned=tuned)
    if not _left_to_triton(kernel):
        return 0, library
    shape = kernel.geometry
    if isinstance(shape, Gemm) and kernel.vector_flops and shape.lhs_dtype == SPLIT_FROM_EPILOGUE:
        return _before_epilogue(kernel, shape, device), library
    return _workspace(device) if library else 0, library


def _before_epilogue(kernel: Kernel, shape: Gemm, device: Device) -> int:
    """Bytes of cuBLAS's call and a pass for the epilogue: first the workspace, then the product that the pass reads."""
    if not kernel.vector_flops or computes_operands(kernel, shape):  # by Triton, as no library does
        return 0
    if shape.lhs_dtype != SPLIT_FROM_EPILOGUE or not _can_call(shape, device):
        return 0
    product = int(shape.batch * shape.m * shape.n * element_bytes(shape.out_dtype))
    return max(_workspace(device), product) if _cublas_wins(shape, device) else 0


def _left_to_triton(kernel: Kernel) -> bool:
    """Whether a compiler's kernel is a product of Triton's: a call of cuBLAS has its workspace as a second result."""
    return isinstance(kernel.geometry, Gemm) and kernel.kind is KernelKind.GEMM and len(kernel.writes) == 1


def calls_cublas(kernel: Kernel, shape: Gemm, device: Device, *, tuned: bool = True) -> bool:
    """Whether autotuning is taken to choose cuBLAS; an epilogue of XLA's own says that it did not.

    The epilogue of a product that is split is computed behind its sum, by another kernel: it says nothing of the product.
    """
    if not _can_call(shape, device):
        return False
    if not tuned:
        return True
    alone = not kernel.vector_flops or split_parts(shape, device.cores, device.architecture) > 1
    return alone and _cublas_wins(shape, device)


def _can_call(shape: Gemm, device: Device) -> bool:
    if min(element_bytes(shape.lhs_dtype), element_bytes(shape.rhs_dtype)) < 1:
        return False  # cuBLAS multiplies no integers of less than a byte, nor of two widths
    return device.vendor.lower() == "nvidia" and shape.groups == 1 and not is_summed(shape) and not is_tiny(shape)


def _cublas_wins(shape: Gemm, device: Device) -> bool:
    """Whether cuBLAS is taken to be faster than Triton for a product alone."""
    element = element_bytes(shape.lhs_dtype)
    if min(shape.m, shape.n) < FEW_ROWS or not shape.reads_aligned:
        return False
    results = shape.batch * shape.m * shape.n
    small = SMALL_BYTE_PRODUCT if element < 2 else SMALL_PRODUCT
    if split_parts(shape, device.cores, device.architecture) > 1 and element == 4:
        small = SMALL_SPLIT_PRODUCT
    if results * shape.k < small:
        return False
    if element != 2 or results >= LARGE_RESULT or shape.k >= LONG_K:
        return True
    if shape.k < SHORT_K:
        return False
    parts = split_parts(shape, device.cores, device.architecture)
    tiles = parts * shape.batch * math.ceil(shape.m / SPLIT_TILE) * math.ceil(shape.n / SPLIT_TILE)
    return min(shape.m, shape.n) > SPLIT_TILE and tiles < FILLED * math.ceil(tiles / device.cores) * device.cores


def _workspace(device: Device) -> int:
    return WORKSPACE if device.architecture in ("Hopper", "Blackwell") else WORKSPACE_BEFORE


def _product(kernel: Kernel, shape: Gemm, device: Device, *, tuned: bool) -> int:
    if is_tiny(shape):
        return 0
    if is_summed(shape):
        return int(shape.batch * shape.m * shape.n * shape.k * element_bytes(shape.lhs_dtype))
    parts = split_parts(shape, device.cores, device.architecture) if tuned else 1  # cuBLAS sums in its workspace
    partial = partial_bytes(shape, parts) + padded_bytes(shape, parts)
    left, right = element_bytes(shape.lhs_dtype), element_bytes(shape.rhs_dtype)
    transposed = 0.0  # operands of a byte or less are turned along K first, as they are stored
    if max(left, right) <= 1:
        transposed += 0 if shape.lhs_contracting_minor else shape.batch * shape.m * shape.k * left
        transposed += 0 if shape.rhs_contracting_minor else shape.batch * shape.k * shape.n * right
    if not calls_cublas(kernel, shape, device, tuned=tuned):
        return max(partial, _before_epilogue(kernel, shape, device))
    return partial + _workspace(device) + int(transposed)
