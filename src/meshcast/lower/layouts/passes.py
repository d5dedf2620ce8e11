"""What the passes over layouts do to a block; `pass_tables.py` has their order."""

from __future__ import annotations

from meshcast.lower.draft import BlockDraft
from meshcast.lower.layouts.loop_layouts import with_laid_out_loops, with_laid_out_operands
from meshcast.lower.layouts.product_order import with_products_order
from meshcast.lower.layouts.row_layouts import may_lay_out_rows, with_row_layouts
from meshcast.lower.layouts.turned_operands import with_turned_operands
from meshcast.workload import OpKind


def has_row_wishes(draft: BlockDraft) -> bool:
    """Whether a reduction of a block may have its operand in the order that it wishes (`may_lay_out_rows`)."""
    summed = OpKind.REDUCE in draft.kinds
    return summed and may_lay_out_rows(draft.ops, draft.kept, draft.values.tensors, draft.buffer)


def lay_out_rows(draft: BlockDraft) -> None:
    """`with_row_layouts`."""
    draft.ops = with_row_layouts(draft.ops, draft.kept, draft.values, draft.buffer)


def lay_out_loops(draft: BlockDraft) -> None:
    """`with_laid_out_loops`."""
    draft.ops = with_laid_out_loops(draft.ops, draft.block, draft.values, draft.kept)


def has_orders(draft: BlockDraft) -> bool:
    """Whether products of a block want their operands in some order, and it has operands that lie in one."""
    laid_out = not draft.looped and bool(draft.block.inputs)
    return laid_out and any(cost.orders for cost in draft.costs if cost.kind is OpKind.GEMM)


def lay_out_operands(draft: BlockDraft) -> None:
    """`with_laid_out_operands`; what a loop carries has the order that the loop gave it."""
    fixed = frozenset(draft.block.inputs)
    draft.ops = with_laid_out_operands(draft.ops, fixed, draft.values, draft.buffer, draft.kept)


def may_turn_operands(draft: BlockDraft) -> bool:
    """Whether a block has products of more than plain matrices: of views, or over several dimensions.

    Frameworks with arrays of their own for every layer choose orders themselves.
    """
    if OpKind.GEMM not in draft.kinds or draft.program.layers != "scanned":
        return False
    return bool(draft.program.aliases.views) or any(
        sum(map(len, parts)) > 2 for cost in draft.costs for parts in cost.parts
    )


def turn_operands(draft: BlockDraft) -> None:
    """`with_turned_operands`; what a loop carries has the order that the loop gave it."""
    fixed = frozenset() if draft.looped else frozenset(draft.block.inputs)
    known = draft.program.aliases
    draft.ops = with_turned_operands(
        draft.ops, fixed, draft.values, draft.buffer, known.views, known.transposed, draft.kept
    )


def order_products(draft: BlockDraft) -> None:
    """`with_products_order`."""
    views = draft.program.aliases.views
    draft.ops = with_products_order(draft.ops, draft.kept, draft.buffer, views, draft.values.tensors)
