"""Zeros that a scatter or an update is done in, and that arithmetic reads as well: the arithmetic has its own.

Equal ops are computed once (`equal_ops`): `nu + eps_root`, an optimizer's addition of zero, and the zeros of an embedding's
gradient are one array. XLA drops the addition (algebraic_simplifier.cc, `A + 0 => A`) and nothing but the scatter reads the
array; here the constant is spread on the way into the addition, which costs nothing either. Else the array would stay in memory
beside the copy that the scatter has written over. There it does stay for all other arithmetic (a ReLU's comparison): XLA computes
an op inside all of its readers or in none (priority_fusion.cc), and a scatter cannot make what it is done in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.lower.graph.scatters import filled_values
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Op, OpKind


def with_own_fills(ops: Sequence[Op], values: ValueTypes, buffer: Mapping[int, int]) -> Sequence[Op]:
    """The ops with constants spread anew for arithmetic where updates are done in them; `ops` itself where there are none.

    Args:
        ops: A block's ops in order.
        values: Types of all values, which grow.
        buffer: The value whose bytes a view shows.
    """
    targets = {
        buffer.get(value, value) for op in ops if op.cost.kind in IN_PLACE for value in op.operands[: len(op.results)]
    }
    if not targets:
        return ops
    shared = targets & filled_values(ops)
    shared &= {value for op in ops if _is_sum(op) for value in op.operands}
    if not shared:
        return ops
    own: dict[int, int] = {}
    made: list[Op] = []
    for op in ops:
        if _is_sum(op) and not shared.isdisjoint(op.operands):
            op = replace(op, operands=tuple([own.get(value, value) for value in op.operands]))
        made.append(op)
        if len(op.results) == 1 and op.results[0] in shared:
            tensor = values.tensors[op.results[0]]
            own[op.results[0]] = values.new(tensor.shape, tensor.dtype)
            made.append(replace(op, results=(own[op.results[0]],), equal=()))
    return made


def _is_sum(op: Op) -> bool:
    """Whether zeros among its operands would make an op none."""
    return op.cost.kind is OpKind.ELEMENTWISE and op.name.endswith(("add", "subtract"))
