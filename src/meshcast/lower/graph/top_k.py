"""The largest of each row by a sort, where XLA:GPU has no kernel of its own for them.

XLA's kernel takes at most 16 of rows of 1,024 elements or more, in f32 and bf16 (topk_specializer.cc). All others it sorts whole
(topk_rewriter.cc, TopkDecomposer): values with an array of their places, of which the first k are then cut off. A type of 16 bits
and its place fit one number of 32 bits, which is made before and taken apart behind the sort (sort of one operand).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.value_types import ValueTypes, moved
from meshcast.workload import DTYPE_BITS, Cost, Op, OpKind, SortGeometry

MOST, SHORTEST = 16, 1024
_OWN_TYPES = frozenset({"f32", "bf16"})
_PLACES = "i32"


def is_sorted_whole(cost: Cost) -> bool:
    """Whether a cost is that of such a top-k; its type is the operand's."""
    shape = cost.geometry
    if not isinstance(shape, SortGeometry) or shape.top is None:
        return False
    return shape.top > MOST or shape.length < SHORTEST or cost.dtype not in _OWN_TYPES


def with_sorted_tops(ops: Sequence[Op], values: ValueTypes) -> list[Op]:
    """The ops with each such top-k as a sort and what is before and behind it."""
    return [made for op in ops for made in (_sorted(op, values) if _is_plain(op) else (op,))]


def _is_plain(op: Op) -> bool:
    return is_sorted_whole(op.cost) and len(op.operands) == 1 and len(op.results) == 2


def _sorted(op: Op, values: ValueTypes) -> list[Op]:
    shape, (operand,) = op.cost.geometry, op.operands
    assert isinstance(shape, SortGeometry)
    tensor = values.tensors[operand]
    packed = DTYPE_BITS.get(tensor.dtype, 32) <= 16
    places = values.new(tensor.shape, _PLACES)
    if packed:
        before = moved(op, OpKind.ELEMENTWISE, "stablehlo.or", operand, places, values)
        given: tuple[int, ...] = (places,)
    else:
        size = values.tensors[places].bytes
        cost = Cost(kind=OpKind.MOVE, dtype=_PLACES, written_bytes=size)
        before = replace(op, name="stablehlo.iota", cost=cost, operands=(), results=(places,))
        given = (operand, places)
    wholes = tuple([values.new(tensor.shape, values.tensors[value].dtype) for value in given])
    sizes = tuple([values.tensors[value].bytes for value in given])
    cost = replace(
        op.cost,
        dtype=values.tensors[given[0]].dtype,
        operand_bytes=sizes,
        written_bytes=sum(sizes),
        geometry=replace(shape, top=None, operands=len(given)),
    )
    sort = replace(op, name="stablehlo.sort", cost=cost, operands=given, results=wholes)
    cut = [
        moved(
            op,
            OpKind.SLICE,
            "stablehlo.slice",
            wholes[0 if packed else at],
            result,
            values,
            read=values.tensors[result].bytes,
        )
        for at, result in enumerate(op.results)
    ]
    return [before, sort, *cut]
