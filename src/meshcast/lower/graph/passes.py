"""What the passes over single ops do to a block; `pass_tables.py` has their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshcast.lower.draft import BlockDraft
from meshcast.lower.graph.aliases import AliasRule, without_aliases
from meshcast.lower.graph.counter_strides import is_counter, with_kept_strides
from meshcast.lower.graph.dead_code import live_ops, without_unread
from meshcast.lower.graph.empty_arrays import without_nothing
from meshcast.lower.graph.equal_ops import without_equal_ops
from meshcast.lower.graph.own_fills import with_own_fills
from meshcast.lower.graph.scatters import has_one_index, scatter_into_addends, with_simple_indices
from meshcast.lower.graph.top_k import is_sorted_whole, with_sorted_tops
from meshcast.workload import Attention, OpKind

# Only these leave ops without readers: reversed filters, zeros and their scatters; beside them transposes that are undone,
# and weights that products widen themselves.
_LEAVING = (OpKind.CONVOLUTION, OpKind.SCATTER)


def drop_dead_code(draft: BlockDraft) -> None:
    """The block's live ops, and which values outlive it."""
    free = draft.program.free
    live = live_ops(draft.block, free)
    draft.ops = live
    draft.nested = {value for op in live if op.blocks for inner in op.blocks for value in free(inner)}
    draft.kept = draft.nested.union(draft.block.outputs)


def has_equal_ops(draft: BlockDraft) -> bool:
    """Whether a block computes something twice."""
    return any(op.equal for op in draft.ops)


def share_equal_ops(draft: BlockDraft) -> None:
    """`without_equal_ops`; what outlives the block is then the first op's value."""
    draft.ops = without_equal_ops(draft.ops, draft.buffer)
    draft.kept.update([draft.buffer[value] for value in draft.kept if value in draft.buffer])


def drop_nothing(draft: BlockDraft) -> None:
    """`without_nothing`."""
    draft.ops = without_nothing(draft.ops, draft.program.empty)


def has_aliases(rules: Mapping[OpKind, AliasRule]) -> Callable[[BlockDraft], bool]:
    """Whether a block has ops that may be aliases by these rules, or attention, whose transposes may be."""

    def applies(draft: BlockDraft) -> bool:
        return not rules.keys().isdisjoint(draft.kinds) or any(isinstance(c.geometry, Attention) for c in draft.costs)

    return applies


def resolve_aliases(rules: Mapping[OpKind, AliasRule]) -> Callable[[BlockDraft], None]:
    """The pass that leaves out what is an alias by these rules."""

    def run(draft: BlockDraft) -> None:
        draft.ops = without_aliases(draft.ops, draft.program.aliases, draft.kept, rules)

    return run


def has_counters(draft: BlockDraft) -> bool:
    """Whether a block numbers elements in 64 bits."""
    return OpKind.GENERATE in draft.kinds and any(map(is_counter, draft.costs))


def keep_strides(draft: BlockDraft) -> None:
    """`with_kept_strides`, without the counters that nobody reads then."""
    made = with_kept_strides(draft.ops, draft.values, draft.buffer)
    if len(made) > len(draft.ops):
        draft.ops = made
        drop_unread(draft)


def scatter_in_place(draft: BlockDraft) -> None:
    """`scatter_into_addends`."""
    draft.ops = scatter_into_addends(draft.ops, draft.kept, draft.buffer)


def has_simple_indices(draft: BlockDraft) -> bool:
    """Whether a block has gathers or scatters of one index."""
    indexed = not draft.kinds.isdisjoint((OpKind.GATHER, OpKind.SCATTER))
    return indexed and any(map(has_one_index, draft.ops))


def slice_simple_indices(draft: BlockDraft) -> None:
    """`with_simple_indices`."""
    draft.ops = with_simple_indices(draft.ops, draft.values.tensors)


def has_sorted_tops(draft: BlockDraft) -> bool:
    """Whether a block has top-k's that are sorts."""
    return OpKind.SORT in draft.kinds and any(map(is_sorted_whole, draft.costs))


def sort_tops(draft: BlockDraft) -> None:
    """`with_sorted_tops`."""
    draft.ops = with_sorted_tops(draft.ops, draft.values)


def leaves_unread(draft: BlockDraft) -> bool:
    """Whether rewrites may have left ops without readers."""
    return draft.program.aliases.undone or bool(draft.stored) or not draft.kinds.isdisjoint(_LEAVING)


def drop_unread(draft: BlockDraft) -> None:
    """`without_unread`."""
    draft.ops = without_unread(draft.ops, draft.kept, draft.buffer, draft.program.free)


def fill_anew(draft: BlockDraft) -> None:
    """`with_own_fills`."""
    draft.ops = with_own_fills(draft.ops, draft.values, draft.buffer)
