"""What the passes that concern products and their orders do to a block; `pass_tables.py` has them among the others."""

from __future__ import annotations

from meshcast.lower.cut_operands import CUT, with_cut_operands
from meshcast.lower.draft import BlockDraft
from meshcast.lower.padded_operands import needs_padding, with_padded_operands
from meshcast.lower.product_order import with_products_order
from meshcast.lower.summed_orders import with_orders_of_sums
from meshcast.lower.swapped_products import with_swapped_products
from meshcast.lower.turned_operands import with_turned_operands
from meshcast.lower.vector_products import has_vectors, with_summed_vectors
from meshcast.lower.written_masks import has_batches, with_written_masks
from meshcast.workload import OpKind


def may_swap_products(draft: BlockDraft) -> bool:
    """Whether a compiler may find transposes behind products; frameworks have none there, and add up gradients apart."""
    return draft.program.layers == "scanned" and draft.kinds >= {OpKind.GEMM, OpKind.TRANSPOSE}


def swap_products(draft: BlockDraft) -> None:
    """`with_swapped_products`."""
    shown = {draft.buffer[value] for value in draft.buffer}
    draft.ops = with_swapped_products(draft.ops, draft.kept | shown)


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


def has_vector_products(draft: BlockDraft) -> bool:
    """Whether a block has products with vectors."""
    return any(map(has_vectors, draft.costs))


def sum_vector_products(draft: BlockDraft) -> None:
    """`with_summed_vectors`, behind `with_orders_of_sums`."""
    known = draft.program.aliases
    draft.ops = with_orders_of_sums(draft.ops, draft.kept, draft.buffer, known.views, draft.values.tensors)
    draft.ops = with_summed_vectors(draft.ops, draft.values, known.transposed)


def may_pad_operands(draft: BlockDraft) -> bool:
    """Whether a block has products whose operands are padded; frameworks call libraries, which split as they like."""
    return draft.program.layers == "scanned" and any(map(needs_padding, draft.costs))


def pad_operands(draft: BlockDraft) -> None:
    """`with_padded_operands`."""
    draft.ops = with_padded_operands(draft.ops, draft.values, draft.buffer)


def may_cut_operands(draft: BlockDraft) -> bool:
    """Whether a block has products, and maxima that may lead to them."""
    return draft.kinds >= {OpKind.GEMM, OpKind.ELEMENTWISE} and any(op.name == CUT for op in draft.ops)


def cut_operands(draft: BlockDraft) -> None:
    """`with_cut_operands`."""
    draft.ops, draft.operands = with_cut_operands(draft.ops, draft.operands, draft.live_out, draft.values.tensors)


def may_write_masks(draft: BlockDraft) -> bool:
    """Whether a block has products over batches of several dimensions, and broadcasts."""
    return OpKind.BROADCAST in draft.kinds and any(map(has_batches, draft.costs))


def write_masks(draft: BlockDraft) -> None:
    """`with_written_masks`."""
    inputs, tensors = frozenset(draft.block.inputs), draft.values.tensors
    draft.ops = with_written_masks(draft.ops, inputs, draft.kept, tensors, draft.buffer)
