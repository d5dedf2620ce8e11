"""Batched products with vectors, which XLA:GPU makes multiplications and reductions of.

`c_bn = sum_k A_bnk x_bk` has nothing to reuse: as a reduction it is one kernel that reads the matrix where it lies, with
whatever leads to it fused in. XLA's dot strength reduction does so for two vectors, and for every product whose operands
have batches and of which one has no dimension of its own; without batches only for small ones (`products.is_summed`),
where it also writes the products first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.rewriting import ValueTypes
from meshcast.workload import Cost, Gemm, Op, OpKind, Reduction


def is_summed_in_batches(op: Op) -> bool:
    """Whether a product is a batch of products with vectors, or of two vectors."""
    return has_vectors(op.cost) and len(op.operands) == 2


def has_vectors(cost: Cost) -> bool:
    """Whether a cost is that of a product with such an operand."""
    shape = cost.geometry
    if cost.kind is not OpKind.GEMM or not isinstance(shape, Gemm) or shape.groups > 1:
        return False
    return max(shape.m, shape.n) == 1 or (shape.batch > 1 and min(shape.m, shape.n) == 1)


def with_summed_vectors(ops: Sequence[Op], values: ValueTypes) -> list[Op]:
    """The ops with each such product replaced by a multiplication and the reduction of its result."""
    return [made for op in ops for made in (_summed(op, values) if is_summed_in_batches(op) else (op,))]


def _summed(op: Op, values: ValueTypes) -> list[Op]:
    shape = op.cost.geometry
    assert isinstance(shape, Gemm)
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
