"""What is computed of constants before a program runs, and updates that overwrite all of their target.

XLA computes what has constants for operands (constant_folding.cc), a broadcast aside, which would only make them larger, and
counters, which it makes on the way. A single element is folded wherever it stands: arithmetic on splats is arithmetic on one
element to XLA (the algebraic simplifier moves broadcasts behind it). Inside fusions this costs nothing either way; but what a
loop begins with, or a program returns, is a constant in memory then and no kernel's result. An update as large as its target is
the new value itself (HandleDynamicUpdateSlice of algebraic_simplifier.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.lower.graph.dead_code import without_unread
from meshcast.workload import Cost, Op, OpKind, Tensor

_FOLDED = frozenset({OpKind.ELEMENTWISE, OpKind.SLICE, OpKind.MOVE, OpKind.TRANSPOSE})
MOST_ELEMENTS = 45_000_000  # of a folded constant (constant_folding.cc, kMaximumConstantSizeElements)


def may_fold(draft: BlockDraft) -> bool:
    """Whether a block has constants and what may be computed of them."""
    return OpKind.GENERATE in draft.kinds and not draft.kinds.isdisjoint(_FOLDED)


def fold_constants(draft: BlockDraft) -> None:
    """`with_folded_constants`, without what only they have read."""
    made = with_folded_constants(draft.ops, draft.values.tensors, draft.buffer)
    if made is not draft.ops:
        draft.ops = without_unread(made, draft.kept, draft.buffer, draft.program.free)


def has_updates(draft: BlockDraft) -> bool:
    """Whether a block updates slices."""
    return OpKind.UPDATE in draft.kinds


def drop_whole_updates(draft: BlockDraft) -> None:
    """`without_whole_updates`; what outlives the block is then what was written."""
    made = without_whole_updates(draft.ops, draft.values.tensors, draft.buffer)
    if made is not draft.ops:
        draft.take_shown(made)


def with_folded_constants(ops: Sequence[Op], tensors: Sequence[Tensor], buffer: Mapping[int, int]) -> Sequence[Op]:
    """The ops with constants instead of what is computed of constants alone; `ops` itself where nothing is.

    Args:
        ops: A block's ops in order.
        tensors: Types of all values.
        buffer: The value whose bytes a view shows.
    """
    constants: set[int] = set()  # arrays, element by element
    spread: set[int] = set()  # one constant in every place
    known: set[int] = set()  # both
    made: list[Op] = []
    found = False
    for op in ops:
        kind, read = op.cost.kind, [buffer.get(value, value) for value in op.operands]
        if kind is OpKind.GENERATE:
            if not op.name.endswith("iota"):
                constants.update(op.results)
                known.update(op.results)
        elif kind is OpKind.BROADCAST and len(read) == 1 and read[0] in known:
            if tensors[read[0]].elements == 1 or read[0] in spread:
                spread.update(op.results)
                known.update(op.results)
        elif kind in _FOLDED and len(op.results) == 1 and read and known.issuperset(read):
            elements = tensors[op.results[0]].elements
            if elements == 1 or (constants.issuperset(read) and elements <= MOST_ELEMENTS):
                op = replace(op, name="stablehlo.constant", cost=_constant(op.cost), operands=(), equal=())
                constants.update(op.results)
                known.update(op.results)
                found = True
            elif kind is OpKind.ELEMENTWISE and spread.issuperset(each for each in read if tensors[each].elements > 1):
                spread.update(op.results)
                known.update(op.results)
        made.append(op)
    return made if found else ops


def _constant(cost: Cost) -> Cost:
    return Cost(kind=OpKind.GENERATE, dtype=cost.dtype)


def without_whole_updates(ops: Sequence[Op], tensors: Sequence[Tensor], buffer: dict[int, int]) -> Sequence[Op]:
    """The ops without updates that leave nothing of their target, whose results are then names of what was written.

    Args:
        ops: A block's ops in order.
        tensors: Types of all values.
        buffer: The value whose bytes another one shows; such results are added.
    """
    shown: dict[int, int] = {}
    left: list[Op] = []
    for op in ops:
        if not shown.keys().isdisjoint(op.operands):
            op = replace(op, operands=tuple([shown.get(value, value) for value in op.operands]))
        if op.cost.kind is OpKind.UPDATE and len(op.results) == 1 and len(op.operands) > 1:
            written = op.operands[1]
            if tensors[written].shape == tensors[op.results[0]].shape:
                shown[op.results[0]] = written
                continue
        left.append(op)
    if not shown:
        return ops
    buffer.update(shown)
    return left
