"""Ragged products on GPUs, for which XLA has no kernel: it masks an operand once for each group and multiplies all of it.

With G groups, `[M, K] x [G, K, N] -> [M, N]` becomes

    masked[m, g, k] = lhs[m, k] if row m belongs to group g else 0      G M K elements, written and read again
    out = masked[M, (G K)] x rhs[(G K), N]                              2 M N G K FLOPs, G times those of a grouped kernel

and where groups share out what is summed over, `[K, M], [K, N] -> [G, M, N]`, G products of all K rows of which the mask leaves
a G-th. Read off XLA's optimized programs (JAX 0.11) and measured on an H200: 4096 x 2048 x 5632 in 8 groups takes one product of
957 us behind 81 us of masking. Stacks that bring a grouped kernel of their own keep the product whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Cost, Gemm, Op, OpKind

RaggedProducts = Literal["masked", "grouped"]
"""How a stack runs ragged products on GPUs: dense ones of masked operands, or one grouped kernel."""

MASK_OPS = 4.0  # an element: two comparisons with the group's bounds, their conjunction, the choice


def with_masked_groups(ops: Sequence[Op], values: ValueTypes) -> list[Op]:
    """The ops with each ragged product replaced by the mask of its left operand and the dense product of that."""
    return [made for op in ops for made in (_masked(op, values) if is_ragged(op.cost) else (op,))]


def is_ragged(cost: Cost) -> bool:
    """Whether a cost is that of a ragged product."""
    shape = cost.geometry
    return cost.kind is OpKind.GEMM and isinstance(shape, Gemm) and max(shape.groups, shape.split) != 1


def _masked(op: Op, values: ValueTypes) -> list[Op]:
    shape = op.cost.geometry
    assert isinstance(shape, Gemm)
    groups = max(shape.groups, shape.split)
    tensors = values.tensors
    lhs, rhs, sizes = op.operands[0], op.operands[1], op.operands[2]
    rows = tensors[lhs].shape
    # Rows lie beside their groups, so that groups and what is summed over are one dimension of the product.
    masked = values.new((*rows[:-1], groups, rows[-1]) if shape.groups > 1 else (groups, *rows), tensors[lhs].dtype)
    size = tensors[masked].bytes
    masking = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=tensors[lhs].dtype,
        vector_flops=MASK_OPS * groups * tensors[lhs].elements,
        operand_bytes=(tensors[lhs].bytes, tensors[sizes].bytes),
        written_bytes=size,
    )
    dense = (
        replace(shape, k=shape.k * groups, groups=1, lhs_contracting_minor=True)
        if shape.groups > 1
        else replace(shape, k=shape.k * groups, split=1)
    )
    product = replace(
        op.cost,
        matrix_flops=op.cost.matrix_flops * groups,
        recomputed_flops=op.cost.recomputed_flops + op.cost.matrix_flops * (groups - 1),
        operand_bytes=(size, tensors[rhs].bytes),
        geometry=dense,
        orders=(),
    )
    return [
        replace(op, name="stablehlo.select", cost=masking, operands=(lhs, sizes), results=(masked,)),
        replace(op, name="stablehlo.dot_general", cost=product, operands=(masked, rhs)),
    ]
