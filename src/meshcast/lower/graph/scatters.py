"""Gradients of gathers: `add(y, scatter(zeros, updates))` becomes `scatter(y, updates)`; single indices become slices.

XLA's algebraic simplifier adds straight into the other addend (a momentum, an accumulated gradient) instead of filling
an array with zeros, scattering into it and adding that up. A gather or scatter with one index is a slice or its update
(gather_expander.cc and scatter_expander.cc, kEliminateSimple*), which loops compute on their way (`fusion.computed_updates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from meshcast.workload import Indexed, Op, OpKind, Tensor

_NO_VIEWS: Mapping[int, int] = MappingProxyType({})


def scatter_into_addends(ops: Sequence[Op], kept: Set[int], buffer: Mapping[int, int]) -> list[Op]:
    """The ops with such additions replaced; scatters and zeros that nothing reads any more are left to a later pass.

    Args:
        ops: A block's ops in order.
        kept: Values that outlive the block.
        buffer: The value whose bytes a view shows.
    """
    scatters = {op.results[0]: op for op in ops if op.cost.kind is OpKind.SCATTER and len(op.results) == 1}
    filled = filled_values(ops)
    scatters = {v: op for v, op in scatters.items() if buffer.get(op.operands[0], op.operands[0]) in filled}
    readers = dict.fromkeys(scatters, 0)
    for op in ops:
        for value in op.operands:
            value = buffer.get(value, value)
            if value in readers:
                readers[value] += 1
    return [_merged(op, scatters, readers, kept, buffer) for op in ops]


def with_simple_indices(ops: Sequence[Op], tensors: Sequence[Tensor]) -> list[Op]:
    """The ops with gathers and scatters of one index as slices and updates.

    Args:
        ops: A block's ops in order.
        tensors: Types of all values.
    """
    return [_simple(op, tensors) if has_one_index(op) else op for op in ops]


def filled_values(ops: Sequence[Op], buffer: Mapping[int, int] = _NO_VIEWS) -> set[int]:
    """Values that are made of constants alone.

    Args:
        ops: A block's ops in order.
        buffer: The value whose bytes a view shows, where views of constants count too.
    """
    filled: set[int] = set()
    for op in ops:
        kind, read = op.cost.kind, [buffer.get(value, value) for value in op.operands]
        if kind is OpKind.GENERATE or (kind is OpKind.BROADCAST and filled.issuperset(read)):
            filled.update(op.results)
    return filled


def has_one_index(op: Op) -> bool:
    """Whether an op is a gather or scatter with a single index."""
    return isinstance(op.cost.geometry, Indexed) and op.cost.geometry.count == 1 and len(op.results) == 1


def _simple(op: Op, tensors: Sequence[Tensor]) -> Op:
    cost = replace(op.cost, geometry=None)
    if op.cost.kind is OpKind.GATHER:
        return replace(op, name="stablehlo.dynamic_slice", cost=replace(cost, kind=OpKind.SLICE))
    if op.cost.kind is not OpKind.SCATTER:
        return op
    target, indices, update = op.operands
    sizes = (0, tensors[update].bytes, tensors[indices].bytes)
    cost = replace(cost, kind=OpKind.UPDATE, operand_bytes=sizes)
    return replace(op, name="stablehlo.dynamic_update_slice", cost=cost, operands=(target, update, indices))


def _merged(
    op: Op, scatters: Mapping[int, Op], readers: Mapping[int, int], kept: Set[int], buffer: Mapping[int, int]
) -> Op:
    if not op.name.endswith(".add") or len(op.operands) != 2:
        return op
    for scattered, other in (op.operands, op.operands[::-1]):
        value = buffer.get(scattered, scattered)
        if value in scatters and readers[value] == 1 and value not in kept and scattered not in kept:
            return replace(scatters[value], operands=(other, *scatters[value].operands[1:]), results=op.results)
    return op
