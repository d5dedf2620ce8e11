"""Matrices that dense solvers read: column by column, in memory of their own.

cuSOLVER's and cuBLAS's solvers take matrices by columns, and work where their first operand lies (jax/_src/lax/linalg.py gives
the calls these layouts and aliases; GpuLayoutAssignment those of triangular solves). What a fusion makes is made by columns, and
so is a solver's own result. An argument lies by rows: it is turned first, by a kernel, or copied where it is a vector. So does a
program's result: a solver's that is returned is turned behind it. The permutation of an LU factorisation's pivots is a call, too:
what it reads and what it gives are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.lower.value_types import LAID_OUT_ANEW, ValueTypes, moved
from meshcast.workload import Factorisation, Op, OpKind, Tensor

# The operand that a routine writes over; of all others the first. A triangular solve copies its right-hand side itself.
_WORKED_IN = {"q": 2, "triangular": None}


def has_solvers(draft: BlockDraft) -> bool:
    """Whether a program's outermost block calls dense solvers: what a loop carries may lie as they want it."""
    return not draft.looped and OpKind.LINALG in draft.kinds


def turn_solver_operands(draft: BlockDraft) -> None:
    """`with_turned_solver_operands`."""
    inputs = frozenset(draft.block.inputs)
    draft.ops = with_turned_solver_operands(draft.ops, inputs, draft.kept, draft.values, draft.buffer)


def with_turned_solver_operands(
    ops: Sequence[Op], inputs: Set[int], kept: Set[int], values: ValueTypes, buffer: Mapping[int, int]
) -> list[Op]:
    """The ops with transposes or copies of arguments before the solvers that read them, and of their results that are returned.

    Args:
        ops: A block's ops in order, without views.
        inputs: Values that enter the block.
        kept: Values that outlive it.
        values: Types of all values, to which the turned ones are added.
        buffer: The value whose bytes a view shows.
    """
    made: list[Op] = []
    returned = {buffer.get(value, value) for value in kept}
    columns: dict[int, int] = {}  # what is returned by rows -> as its solver leaves it
    for op in ops:
        if columns and not columns.keys().isdisjoint(op.operands):
            op = replace(op, operands=tuple([columns.get(value, value) for value in op.operands]))
        shape = op.cost.geometry
        if op.cost.kind is not OpKind.LINALG or not isinstance(shape, Factorisation):
            made.append(op)
            continue
        operands = list(op.operands)
        for place, value in enumerate(op.operands):
            if buffer.get(value, value) not in inputs:
                continue
            matrix = _is_matrix(values.tensors[value])
            if not matrix and place != _WORKED_IN.get(shape.routine, 0):
                continue
            turned = operands[place] = values.add(values.tensors[value])
            made.append(_turned(op, value, turned, values) if matrix else _copied(op, value, turned, values))
        found = [value for value in op.results if value in returned and _is_matrix(values.tensors[value])]
        for value in found:
            columns[value] = values.add(values.tensors[value])
        results = tuple([columns.get(value, value) for value in op.results])
        made.append(replace(op, operands=tuple(operands), results=results))
        made += [_turned(op, columns[value], value, values) for value in found]
    return made


def _is_matrix(tensor: Tensor) -> bool:
    return len(tensor.shape) > 1 and min(tensor.shape[-2:]) > 1


def _copied(op: Op, value: int, result: int, values: ValueTypes) -> Op:
    return replace(moved(op, OpKind.MOVE, "copy", value, result, values), equal=())


def _turned(op: Op, value: int, result: int, values: ValueTypes) -> Op:
    """A matrix by rows as one by columns, or the other way round."""
    made = moved(op, OpKind.TRANSPOSE, LAID_OUT_ANEW, value, result, values)
    last = len(values.tensors[value].shape) - 1
    return replace(made, cost=replace(made.cost, orders=((*range(last - 1), last, last - 1),)), equal=())
