"""Products with vectors and outer products, which XLA:GPU makes multiplications and reductions of.

`c_bn = sum_k A_bnk x_bk` has nothing to reuse: as a reduction it is one kernel that reads the matrix where it lies, with
whatever leads to it fused in. XLA's dot strength reduction (dot_strength_reduction.cc) does so for two vectors, and for every
product with a vector whose matrix is small, of a batch or not (`products.is_summed`). Whether the products are written first is
the cost model's to say (`fusion.cost_model`): where few blocks sum columns of a matrix they are. A sum over a single element is a
multiplication (algebraic_simplifier.cc).

So it does of any product of two operands of less than a byte, which neither cuBLAS nor Triton takes: both are converted to the
result's type and spread out, and every pair is multiplied by plain cores (asked of the real compiler, JAX 0.11.2, i4 by i4 and
i2 by i2 for an A100 and an H200; 2048 x 2048 x 2048 takes 4.6 ms, `data/measured/h200-narrow`). An operand of a byte beside
one of less is a product of Triton's (`narrow_weights.py`), and so is what converts both to bytes first.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from meshcast.lower.products.matrix_products import is_summed, with_swapped_operands
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Gemm, Op, OpKind, Reduction, element_bytes


def is_vector_product(op: Op) -> bool:
    """Whether a product is one with vectors, or sums over a single element."""
    return has_vectors(op.cost) and len(op.operands) == 2


def has_vectors(cost: Cost) -> bool:
    """Whether a cost is that of a product with such an operand."""
    shape = cost.geometry
    if cost.kind is not OpKind.GEMM or not isinstance(shape, Gemm) or shape.groups > 1:
        return False
    return shape.k == 1 or max(shape.m, shape.n) == 1 or is_summed(shape) or multiplies_packed(shape)


def multiplies_packed(shape: Gemm) -> bool:
    """Whether both operands are integers of less than a byte."""
    kinds = (shape.lhs_dtype, shape.rhs_dtype)
    return all(element_bytes(kind) < 1 and kind.lstrip("su").startswith("i") and kind != "i1" for kind in kinds)


def with_summed_vectors(ops: Sequence[Op], values: ValueTypes, transposed: Set[int] = frozenset()) -> list[Op]:
    """The ops with each such product replaced by the vector spread out, a multiplication and a reduction."""
    made: list[Op] = []
    for op in ops:
        made += _summed(with_swapped_operands(op, transposed), values) if is_vector_product(op) else (op,)
    return made


def _summed(op: Op, values: ValueTypes) -> list[Op]:
    shape = op.cost.geometry
    assert isinstance(shape, Gemm)
    if shape.k == 1:
        return [_spread(op, shape, values)]
    if min(shape.m, shape.n) > 1:
        return _multiplied_out(op, shape, values)
    side = 1 if shape.n > 1 else 0
    minor = shape.rhs_contracting_minor if side else shape.lhs_contracting_minor
    free = max(shape.m, shape.n)
    dims = (shape.batch, free, shape.k) if minor else (shape.batch, shape.k, free)
    matrix, vector = op.operands[side], op.operands[1 - side]
    tensors = values.tensors
    spread, products = (values.new(dims, tensors[value].dtype) for value in (vector, matrix))
    macs = float(shape.batch * free * shape.k)
    broadcast = Cost(
        kind=OpKind.BROADCAST,
        dtype=tensors[vector].dtype,
        operand_bytes=(tensors[vector].bytes,),
        written_bytes=tensors[spread].bytes,
    )
    multiplied = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=tensors[matrix].dtype,
        vector_flops=macs,
        operand_bytes=(tensors[matrix].bytes, tensors[spread].bytes),
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
        replace(op, name="stablehlo.broadcast_in_dim", cost=broadcast, operands=(vector,), results=(spread,)),
        replace(op, name="stablehlo.multiply", cost=multiplied, operands=(matrix, spread), results=(products,)),
        replace(op, name="stablehlo.reduce", cost=summed, operands=(products,)),
    ]


def _multiplied_out(op: Op, shape: Gemm, values: ValueTypes) -> list[Op]:
    """Both matrices spread over the dimensions of the other, in the result's type, multiplied and summed."""
    tensors, dims = values.tensors, (shape.batch, shape.m, shape.n, shape.k)
    macs = float(shape.batch * shape.m * shape.n * shape.k)
    made, spread = [], []
    for value in op.operands:
        whole = values.new(dims, shape.out_dtype)
        # With the conversion, which XLA leaves inside of the sum: nothing of it is written.
        broadcast = Cost(
            kind=OpKind.BROADCAST, dtype=shape.out_dtype, operand_bytes=(tensors[value].bytes,),
            written_bytes=tensors[whole].bytes,
        )  # fmt: skip
        made.append(replace(op, name="stablehlo.broadcast_in_dim", cost=broadcast, operands=(value,), results=(whole,)))
        spread.append(whole)
    products = values.new(dims, shape.out_dtype)
    size = tensors[products].bytes
    multiplied = Cost(
        kind=OpKind.ELEMENTWISE, dtype=shape.out_dtype, vector_flops=macs, operand_bytes=(size, size), written_bytes=size
    )  # fmt: skip
    summed = Cost(
        kind=OpKind.REDUCE, dtype=shape.out_dtype, vector_flops=macs, operand_bytes=(size,),
        written_bytes=tensors[op.results[0]].bytes, geometry=Reduction(shape=dims, dims=(3,)),
    )  # fmt: skip
    return [
        *made,
        replace(op, name="stablehlo.multiply", cost=multiplied, operands=tuple(spread), results=(products,)),
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
