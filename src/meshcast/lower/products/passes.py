"""What the passes over products do to a block or a program; `pass_tables.py` has their order."""

from __future__ import annotations

from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.layouts.orders_of_sums import with_orders_of_sums
from meshcast.lower.products.merged_products import merge_products
from meshcast.lower.products.narrow_operands import with_both_orders
from meshcast.lower.products.narrow_weights import stored_weights
from meshcast.lower.products.padded_operands import needs_padding, with_padded_operands
from meshcast.lower.products.ragged_products import is_ragged, with_masked_groups
from meshcast.lower.products.relu_operands import CUT, with_cut_operands
from meshcast.lower.products.swapped_products import with_swapped_products
from meshcast.lower.products.vector_products import has_vectors, with_summed_vectors
from meshcast.lower.products.written_masks import has_batches, with_written_masks
from meshcast.workload import OpKind


def has_groups(draft: BlockDraft) -> bool:
    """Whether a block has ragged products."""
    return any(map(is_ragged, draft.costs))


def mask_groups(draft: BlockDraft) -> None:
    """`with_masked_groups`."""
    draft.ops = with_masked_groups(draft.ops, draft.values)


def find_stored_weights(draft: BlockDraft) -> None:
    """`stored_weights`, for those behind."""
    draft.stored = stored_weights(draft.ops, draft.values.tensors, draft.buffer)


def merge_dots(draft: BlockDraft) -> None:
    """`merge_products`."""
    reads = draft.program.free.reads
    draft.ops = merge_products(draft.ops, draft.values, draft.buffer, reads, apart=draft.stored.keys())


def may_swap_products(draft: BlockDraft) -> bool:
    """Whether a compiler may find transposes behind products; frameworks have none there, and add up gradients apart."""
    return draft.program.layers == "scanned" and draft.kinds >= {OpKind.GEMM, OpKind.TRANSPOSE}


def swap_products(draft: BlockDraft) -> None:
    """`with_swapped_products`."""
    shown = {draft.buffer[value] for value in draft.buffer}
    draft.ops = with_swapped_products(draft.ops, draft.kept | shown)


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


def copy_narrow_operands(draft: ProgramDraft) -> None:
    """`with_both_orders`."""
    draft.schedule = with_both_orders(draft.schedule, draft.values, saved=draft.layers == "accumulating")
