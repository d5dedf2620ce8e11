"""Strides of random numbers' counters, which XLA:GPU computes in kernels of their own where a draw is large.

`jax.random` numbers the elements of a draw by `sum over dimensions of i_d * stride_d` in 64 bits. To XLA a number that counts
up along one dimension is a row that is spread over the others, and so is its product with a constant (algebraic simplifier,
broadcasts behind arithmetic): `stride_d * i_d` has as many elements as the dimension. Its priority fusion computes that row on
the way while that costs less than a launch, as it counts: up to 2^19 elements of the draw, by XLA of JAX 0.11.2 on draws of 128
to 2,048 rows of 1,024 (896 rows are the only ones of 12 sizes that it does otherwise), two and three dimensions, uniform,
normal and bits alike. The last dimension's stride is 1, and nothing is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshcast.lower.value_types import KEPT_ROW, ValueTypes, moved
from meshcast.workload import Cost, Op, OpKind

LARGE_DRAW = 1 << 19  # elements
_SHORT = 32  # elements of the draw for each of the row's: else to write the row takes longer than to compute it
_WIDE = ("ui64", "i64")


def with_kept_strides(ops: Sequence[Op], values: ValueTypes, buffer: Mapping[int, int]) -> list[Op]:
    """The ops with such products as rows of their own that are spread.

    Args:
        ops: The ops of a block, in order.
        values: Types, to which the rows are added.
        buffer: What a view's value shows.
    """
    counting = {op.results[0]: op.cost.orders[0][0] for op in ops if is_counter(op.cost)}
    made: list[Op] = []
    for op in ops:
        along = next((counting[at] for each in op.operands if (at := buffer.get(each, each)) in counting), None)
        made += [op] if along is None else _kept(op, along, values)
    return made


def is_counter(cost: Cost) -> bool:
    """Whether an op of this cost writes 64-bit numbers that count up along a dimension; the product asks how many they are."""
    return cost.kind is OpKind.GENERATE and bool(cost.orders) and cost.dtype in _WIDE


def _kept(op: Op, along: int, values: ValueTypes) -> list[Op]:
    tensor = values.tensors[op.results[0]]
    rows = tensor.shape[along] if along < len(tensor.shape) else 0
    inner = any(size > 1 for size in tensor.shape[along + 1 :])
    if (
        not op.name.endswith("multiply")
        or not inner
        or tensor.elements <= LARGE_DRAW
        or rows * _SHORT > tensor.elements
    ):
        return [op]
    row = values.new((rows,), tensor.dtype)
    size = values.tensors[row].bytes
    cost = replace(op.cost, vector_flops=float(rows), operand_bytes=(), written_bytes=size)
    spread = moved(op, OpKind.BROADCAST, "stablehlo.broadcast_in_dim", row, op.results[0], values)
    return [replace(op, name=KEPT_ROW, cost=cost, operands=(), results=(row,), equal=()), replace(spread, equal=())]
