"""Slices of joins that lie in one of the joined arrays: they read that array, and where they are all of it they are its name.

After HandleSlice of XLA's algebraic_simplifier.cc (openxla/xla, August 2026): of `x`, `a` and `b` joined along a dimension where
`a` has `n` elements, `x[s:e]` is `a[s:e]` where `e <= n`, and `b[s - n:e - n]` where `s >= n`. Slices with a stride stay. Keys of
`jax.random` are joined of two numbers and cut apart again at every split. A join that nobody reads any more is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.workload import Op, OpKind, Tensor


def may_cut_joins(draft: BlockDraft) -> bool:
    """Whether a block has slices that say where they begin, and joins that they may be of."""
    return {OpKind.SLICE, OpKind.MOVE} <= draft.kinds and any(cost.starts for cost in draft.costs)


def cut_joins(draft: BlockDraft) -> None:
    """`with_cut_joins`, without the joins that nobody reads then; what outlives the block may be a part of one."""
    made = with_cut_joins(draft.ops, draft.values.tensors, draft.buffer)
    if made is not draft.ops:
        draft.take_shown(made)


def with_cut_joins(ops: Sequence[Op], tensors: Sequence[Tensor], buffer: dict[int, int]) -> Sequence[Op]:
    """The ops with such slices replaced; `ops` itself where there are none.

    Args:
        ops: A block's ops in order.
        tensors: Types of all values.
        buffer: The value whose bytes another one shows; slices that are all of an array are added.
    """
    joins = {op.results[0]: op for op in ops if _is_join(op)}
    if not joins:
        return ops
    shown: dict[int, int] = {}
    left: list[Op] = []
    found = False
    for op in ops:
        if not shown.keys().isdisjoint(op.operands):
            op = replace(op, operands=tuple([shown.get(value, value) for value in op.operands]))
            if _is_join(op):
                joins[op.results[0]] = op
        join = joins.get(op.operands[0]) if op.cost.starts and not op.cost.strides else None
        while join is not None:  # what it is a part of may be joined, too
            part = _part(op, join, tensors)
            if part is None:
                break
            found = True
            value, starts = part
            if tensors[value].shape == tensors[op.results[0]].shape:
                shown[op.results[0]] = value
                break
            op = replace(op, operands=(value,), cost=replace(op.cost, starts=starts))
            join = joins.get(value)
        if op.results[:1] != () and op.results[0] in shown:
            continue
        left.append(op)
    buffer.update(shown)
    return left if found else ops


def _is_join(op: Op) -> bool:
    return op.cost.kind is OpKind.MOVE and op.name.endswith("concatenate") and len(op.operands) > 1


def _part(op: Op, join: Op, tensors: Sequence[Tensor]) -> tuple[int, tuple[int, ...]] | None:
    """The joined array that a slice lies in, and where it begins there; None where it takes of several."""
    whole, taken = tensors[join.results[0]].shape, tensors[op.results[0]].shape
    shapes = [tensors[value].shape for value in join.operands]
    dim = next((dim for dim, size in enumerate(whole) if any(shape[dim] != size for shape in shapes)), None)
    if dim is None:
        return None
    start = op.cost.starts[dim]
    end = start + taken[dim]
    for value, shape in zip(join.operands, shapes, strict=True):
        if start < shape[dim]:
            return (value, (*op.cost.starts[:dim], start, *op.cost.starts[dim + 1 :])) if end <= shape[dim] else None
        start, end = start - shape[dim], end - shape[dim]
    return None
