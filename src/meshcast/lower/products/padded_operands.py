"""Operands that XLA:GPU pads with zeros before it splits a product's K into equal parts of whole loads.

splitk_rewriter.cc decides before fusion and autotuning into how many parts K is split (`split_k`), and pads both operands along K
to a multiple of the parts and of 16 bytes (`PadInstruction`). A product reads arrays, so that a pad is a pass over memory of its
own, or the end of the pass that makes the operand: a graph network's gradients sum over its 200,000 edges, of which 200,192 are
made for 64 parts, and a vision transformer's over 32 x 197 tokens. Two products that split one operand alike share its pad
(hlo_cse).

The cores are those of a Hopper, as everywhere where a lowering follows a cost model (`fusion.cost_model`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshcast.lower.fusion.reduction_grids import CORES
from meshcast.lower.products.matrix_products import is_summed, is_tiny
from meshcast.lower.products.split_k import padded_length, split_parts
from meshcast.lower.value_types import ValueTypes, moved
from meshcast.workload import Cost, Gemm, Op, OpKind, element_bytes

PADDED = "stablehlo.pad"
_ARCHITECTURE = "Hopper"


def needs_padding(cost: Cost) -> bool:
    """Whether a cost is that of a product whose K is split into parts that are no equal ones of whole loads."""
    shape = cost.geometry
    if cost.kind is not OpKind.GEMM or not isinstance(shape, Gemm) or shape.groups > 1 or shape.stored_dtype:
        return False
    if min(element_bytes(shape.lhs_dtype), element_bytes(shape.rhs_dtype)) < 1 or is_summed(shape) or is_tiny(shape):
        return False
    return _length(shape) > shape.k


def with_padded_operands(ops: Sequence[Op], values: ValueTypes, buffer: Mapping[int, int]) -> list[Op]:
    """The ops with a pad before each operand of such a product.

    Args:
        ops: A block's ops in order.
        values: Types of all values, which grow.
        buffer: The value whose bytes a view shows.
    """
    padded: dict[tuple[int, tuple[int, ...]], int] = {}
    made: list[Op] = []
    for op in ops:
        if len(op.operands) != 2 or not needs_padding(op.cost):
            made.append(op)
            continue
        shapes = [_padded_shape(op, side) for side in (0, 1)]
        operands = []
        for value, shape in zip(op.operands, shapes, strict=True):
            known = buffer.get(value, value), shape
            if known not in padded:
                padded[known] = values.new(shape, values.tensors[value].dtype)
                made.append(moved(op, OpKind.MOVE, PADDED, value, padded[known], values))
            operands.append(padded[known])
        made.append(_on_padded(op, tuple(operands), values))
    return made


def _length(shape: Gemm) -> int:
    return padded_length(shape, split_parts(shape, CORES, _ARCHITECTURE))


def _padded_shape(op: Op, side: int) -> tuple[int, ...]:
    """An operand's shape in memory with more of what is summed over."""
    gemm = op.cost.geometry
    assert isinstance(gemm, Gemm)
    length, rows = _length(gemm), gemm.n if side else gemm.m
    minor = gemm.rhs_contracting_minor if side else gemm.lhs_contracting_minor
    return (gemm.batch, rows, length) if minor else (gemm.batch, length, rows)


def _on_padded(op: Op, operands: tuple[int, ...], values: ValueTypes) -> Op:
    gemm = op.cost.geometry
    assert isinstance(gemm, Gemm)
    sizes = tuple([values.tensors[value].bytes for value in operands])
    cost = replace(op.cost, operand_bytes=sizes, geometry=replace(gemm, k=_length(gemm)), orders=(), parts=())
    return replace(op, operands=operands, cost=cost, equal=())
