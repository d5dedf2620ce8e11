"""Products with vectors and outer products, which XLA:GPU makes multiplications and reductions of.

`c_bn = sum_k A_bnk x_bk` has nothing to reuse: as a reduction it is one kernel that reads the matrix where it lies, with
whatever leads to it fused in. XLA's dot strength reduction (dot_strength_reduction.cc) does so for two vectors, and for every
product whose operands have batches and of which one has no dimension of its own; without batches only for small ones
(`products.is_summed`). Of these it writes the products first where the matrix is read across its rows and is too large for a
cache to make up for that; they stay products here. A sum over a single element is a multiplication (algebraic_simplifier.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.products import is_summed
from meshcast.lower.rewriting import ValueTypes
from meshcast.workload import Cost, Gemm, Op, OpKind, Reduction

# Elements of a matrix that may be read across its rows: an SM's first cache holds them.
SMALL_MATRIX = 1 << 16


def is_summed_in_batches(op: Op) -> bool:
    """Whether a product is one with vectors, or sums over a single element."""
    return has_vectors(op.cost) and len(op.operands) == 2


def has_vectors(cost: Cost) -> bool:
    """Whether a cost is that of a product with such an operand."""
    shape = cost.geometry
    if cost.kind is not OpKind.GEMM or not isinstance(shape, Gemm) or shape.groups > 1:
        return False
    if shape.k == 1 or max(shape.m, shape.n) == 1:
        return True
    if min(shape.m, shape.n) > 1:
        return False
    minor = shape.rhs_contracting_minor if shape.n > 1 else shape.lhs_contracting_minor
    return shape.batch > 1 or (is_summed(shape) and (minor or max(shape.m, shape.n) * shape.k <= SMALL_MATRIX))


def with_summed_vectors(ops: Sequence[Op], values: ValueTypes) -> list[Op]:
    """The ops with each such product replaced by a multiplication and the reduction of its result."""
    return [made for op in ops for made in (_summed(op, values) if is_summed_in_batches(op) else (op,))]


def _summed(op: Op, values: ValueTypes) -> list[Op]:
    shape = op.cost.geometry
    assert isinstance(shape, Gemm)
    if shape.k == 1:
        return [_spread(op, shape, values)]
    side = 1 if shape.n > 1 else 0
    minor = shape.rhs_contracting_minor if side else shape.lhs_contracting_minor
    free = max(shape.m, shape.n)
    dims = (shape.batch, free, shape.k) if minor else (shape.batch, shape.k, free)
    matrix, vector = op.operands[side], op.operands[1 - side]
    tensors = values.tensors
    products = values.new(dims, tensors[matrix].dtype)
    macs = float(shape.batch * free * shape.k)
    multiplied = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=tensors[matrix].dtype,
        vector_flops=macs,
        operand_bytes=(tensors[matrix].bytes, tensors[vector].bytes),
        written_bytes=tensors[products].bytes,
    )
    summed = Cost(
        kind=OpKind.REDUCE,
        dtype=tensors[matrix].dtype,
        vector_flops=macs,
        operand_bytes=(tensors[products].bytes,),
        written_bytes=tensors[op.results[0]].bytes,
        geometry=Reduction(shape=dims, dims=(2,) if minor else (1,)),
    )
    return [
        replace(op, name="stablehlo.multiply", cost=multiplied, operands=(matrix, vector), results=(products,)),
        replace(op, name="stablehlo.reduce", cost=summed, operands=(products,)),
    ]


def _spread(op: Op, shape: Gemm, values: ValueTypes) -> Op:
    """The multiplication of two operands, each spread over the dimensions of the other."""
    tensors = values.tensors
    cost = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=shape.out_dtype,
        vector_flops=float(shape.batch * shape.m * shape.n),
        operand_bytes=tuple(tensors[value].bytes for value in op.operands),
        written_bytes=tensors[op.results[0]].bytes,
    )
    return replace(op, name="stablehlo.multiply", cost=cost)
