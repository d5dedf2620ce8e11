"""Matrix products as cuBLAS and XLA's Triton GEMMs take them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from meshcast.workload import Gemm, Op, OpKind, Tensor, element_bytes

# Operands as large as the result that an epilogue may read besides it: a residual, a mask and its alternative.
MAX_EPILOGUE_OPERANDS = 2
# Multiply-adds, of one of a batch (dot_strength_reduction.cc).
SMALL_VECTOR_PRODUCT = 10_000_000
# Elements of both operands, of one of a batch, below which a product stays a loop (xla_gpu_gemm_rewrite_size_threshold).
TINY_PRODUCT = 100
_ABOVE_DEFAULT = frozenset({"HIGH", "HIGHEST"})
_LOOPED = frozenset({"f16", "bf16", "f32"})
_EPILOGUE = frozenset({OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.GENERATE, OpKind.VIEW})


def with_swapped_operands(op: Op, transposed: Set[int]) -> Op:
    """The product with the layouts its operands have in memory.

    A transpose into a product moves nothing, as libraries take either order: the operand's contracted dimension is then
    innermost where the product as written says it is not, and the other way round (XLA's dot_dimension_merger,
    transpose_folding and layout assignment).
    """
    gemm = op.cost.geometry
    if not isinstance(gemm, Gemm) or transposed.isdisjoint(op.operands[:2]):
        return op
    lhs, rhs = (value in transposed for value in op.operands[:2])
    geometry = replace(
        gemm,
        lhs_contracting_minor=gemm.lhs_contracting_minor != lhs,
        rhs_contracting_minor=gemm.rhs_contracting_minor != rhs,
    )
    return replace(op, cost=replace(op.cost, geometry=geometry))


def is_summed(gemm: Gemm) -> bool:
    """Whether XLA makes a multiplication and a reduction of a product with a vector, and no library call.

    It does of small ones, and of those that Triton has no kernel for: operands asked for with a precision above the default
    (DotStrengthReduction::InstructionMatchesPattern, CanTritonHandleGEMM), as solvers of linear systems do.
    """
    if min(gemm.m, gemm.n) > 1:
        return False
    return gemm.precision in _ABOVE_DEFAULT or gemm.m * gemm.n * gemm.k < SMALL_VECTOR_PRODUCT


def is_tiny(gemm: Gemm) -> bool:
    """Whether a product is a loop in a kernel of XLA's own, neither cuBLAS's nor Triton's, which nothing joins.

    `(m + n) k < 100` of floats (matmul_utils.cc, IsMatrixMultiplicationTooSmallForRewriting).
    """
    return (gemm.m + gemm.n) * gemm.k < TINY_PRODUCT and gemm.out_dtype in _LOOPED


def is_plain(op: Op) -> bool:
    """Whether an op may be part of an epilogue."""
    return op.cost.kind in _EPILOGUE and not op.cost.transcendentals


def complicated_values(
    ops: Sequence[Op], producing: Sequence[bool], operands: Sequence[Sequence[int]], pinned: Set[int]
) -> set[int]:
    """Values not in memory that take more than plain arithmetic on such as are: slices, transposes, functions.

    Args:
        ops: The ops of a block, in order.
        producing: Whether each may be computed inside of what reads it.
        operands: Theirs, views resolved.
        pinned: Values that are in memory.
    """
    found: set[int] = set()
    for op, is_producer, read in zip(ops, producing, operands, strict=True):
        if not is_producer or not pinned.isdisjoint(op.results):
            continue
        if not is_plain(op) or not found.isdisjoint(read):
            found.update(op.results)
    return found


def epilogue_fits(product: Op, root: Op, large: int, tensors: Sequence[Tensor]) -> bool:
    """Whether a fusion of plain arithmetic can be computed on a product's tiles before they are written.

    XLA's gemm_fusion and gemm_rewriter (cublasLt's RELU and bias epilogues) take plain arithmetic on the result's own
    elements: scales, masks, clamps, a residual. Functions (gelu, silu) and many further operands slow the product's
    tiles down more than a pass over memory costs, and the autotuner then keeps the product alone. So it does of products of
    bytes, which cuBLAS has faster kernels for: what follows them is a kernel of its own.

    Args:
        product: The matrix product; all that is read of it is read by the fusion.
        root: The fusion's root.
        large: How many values of the root's size or more it reads besides the product.
        tensors: Types of all values.
    """
    shape = product.cost.geometry
    if not isinstance(shape, Gemm) or len(product.results) != 1 or len(root.results) != 1 or is_tiny(shape):
        return False
    if max(element_bytes(shape.lhs_dtype), element_bytes(shape.rhs_dtype)) <= 1:
        return False
    same = tensors[root.results[0]].elements == tensors[product.results[0]].elements
    return same and large <= MAX_EPILOGUE_OPERANDS
