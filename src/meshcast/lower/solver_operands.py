"""Matrices that dense solvers read: column by column, in memory of their own.

cuSOLVER's and cuBLAS's solvers take matrices by columns, and work where their first operand lies (jax/_src/lax/linalg.py gives the
calls these layouts and aliases; GpuLayoutAssignment those of triangular solves). What a fusion makes is made by columns, and so is
a solver's own result. An argument lies by rows: it is turned first, by a kernel, or copied where it is a vector. The permutation of
an LU factorisation's pivots is a call, too: what it reads and what it gives are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.lower.rewriting import LAID_OUT_ANEW, ValueTypes, moved
from meshcast.workload import Factorisation, Op, OpKind

# The operand that a routine writes over; of all others the first. A triangular solve copies its right-hand side itself.
_WORKED_IN = {"q": 2, "triangular": None}


def has_solvers(draft: BlockDraft) -> bool:
    """Whether a program's outermost block calls dense solvers: what a loop carries may lie as they want it."""
    return not draft.looped and OpKind.LINALG in draft.kinds


def turn_solver_operands(draft: BlockDraft) -> None:
    """`with_turned_solver_operands`."""
    draft.ops = with_turned_solver_operands(draft.ops, frozenset(draft.block.inputs), draft.values, draft.buffer)


def with_turned_solver_operands(
    ops: Sequence[Op], inputs: frozenset[int], values: ValueTypes, buffer: Mapping[int, int]
) -> list[Op]:
    """The ops with transposes or copies of arguments before the solvers that read them.

    Args:
        ops: A block's ops in order, without views.
        inputs: Values that enter the block.
        values: Types of all values, to which the turned ones are added.
        buffer: The value whose bytes a view shows.
    """
    made: list[Op] = []
    for op in ops:
        shape = op.cost.geometry
        if op.cost.kind is not OpKind.LINALG or not isinstance(shape, Factorisation):
            made.append(op)
            continue
        operands = list(op.operands)
        for place, value in enumerate(op.operands):
            if buffer.get(value, value) not in inputs:
                continue
            tensor = values.tensors[value]
            matrix = len(tensor.shape) > 1 and min(tensor.shape[-2:]) > 1
            if not matrix and place != _WORKED_IN.get(shape.routine, 0):
                continue
            turned = operands[place] = values.add(tensor)
            name, kind = (LAID_OUT_ANEW, OpKind.TRANSPOSE) if matrix else ("copy", OpKind.MOVE)
            before = moved(op, kind, name, value, turned, values)
            if matrix:
                last = len(tensor.shape) - 1
                orders = ((*range(last - 1), last, last - 1),)
                before = replace(before, cost=replace(before.cost, orders=orders))
            made.append(replace(before, equal=()))
        made.append(replace(op, operands=tuple(operands)))
    return made
