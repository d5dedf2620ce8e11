"""What the passes over a block do to it; `pass_tables.py` has their order.

A function that a table names takes the draft and changes it; one that takes rules gives such a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from meshcast.lower.access import Member
from meshcast.lower.aliases import AliasRule, without_aliases
from meshcast.lower.computed_updates import computed_updates, done_in_place
from meshcast.lower.convolution_epilogues import with_convolution_epilogues
from meshcast.lower.convolutions import ConvolutionRewriter
from meshcast.lower.dead_code import live_ops, without_unread
from meshcast.lower.dot_merging import merge_products
from meshcast.lower.draft import BlockDraft
from meshcast.lower.equal_ops import without_equal_ops
from meshcast.lower.fusion import plan_fusion
from meshcast.lower.fusion_rules import Rules
from meshcast.lower.inner_constants import with_inner_constants
from meshcast.lower.kernel import Kernel, Step
from meshcast.lower.layouts import with_laid_out_loops, with_laid_out_operands
from meshcast.lower.list_order import with_less_memory
from meshcast.lower.liveness import stepped_slices
from meshcast.lower.loop_counters import with_single_counters
from meshcast.lower.multi_output import merge_outputs
from meshcast.lower.narrow_weights import stored_weights, with_unpacked_windows, with_weights_as_stored
from meshcast.lower.nothing import without_nothing
from meshcast.lower.ordering import order_for_memory
from meshcast.lower.own_fills import with_own_fills
from meshcast.lower.packed_elements import in_bytes
from meshcast.lower.products import with_swapped_operands
from meshcast.lower.ragged_products import is_ragged, with_masked_groups
from meshcast.lower.reductions import split_reduction
from meshcast.lower.row_layouts import may_lay_out_rows, with_row_layouts
from meshcast.lower.scatters import has_one_index, scatter_into_addends, with_simple_indices
from meshcast.lower.siblings import merge_siblings
from meshcast.lower.single_turns import turns_once, without_single_turns
from meshcast.lower.sinking import spread_inputs, with_sunk_reads, without_allocations
from meshcast.lower.small_kernels import clears_first, memset
from meshcast.lower.strides import is_counter, with_kept_strides
from meshcast.lower.top_k import is_sorted_whole, with_sorted_tops
from meshcast.lower.updates import kept_targets
from meshcast.lower.whole_functions import is_written_out, with_whole_functions
from meshcast.workload import Attention, Op, OpKind

# Only these leave ops without readers: reversed filters, zeros and their scatters; beside them transposes that are undone,
# and weights that products widen themselves.
_LEAVING = (OpKind.CONVOLUTION, OpKind.SCATTER)
_REWRITTEN = (OpKind.REDUCE, OpKind.CONVOLUTION)


def has_blocks(draft: BlockDraft) -> bool:
    """Whether a block has loops or branches."""
    return any(op.blocks for op in draft.block.ops)


def has_single_turns(draft: BlockDraft) -> bool:
    """Whether a block has loops of one turn."""
    return any(turns_once(op, draft.program.on_data) for op in draft.block.ops)


def inline_single_turns(draft: BlockDraft) -> None:
    """`without_single_turns`."""
    draft.block = without_single_turns(draft.block, draft.program.on_data)


def merge_counters(draft: BlockDraft) -> None:
    """`with_single_counters`."""
    ops = tuple(with_single_counters(draft.block.ops, draft.values.tensors))
    draft.block = replace(draft.block, ops=ops)


def sink_constants(draft: BlockDraft) -> None:
    """`with_inner_constants`."""
    ops = tuple(with_inner_constants(draft.block.ops, draft.program.free, draft.values))
    draft.block = replace(draft.block, ops=ops)


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


def has_any(*kinds: OpKind) -> Callable[[BlockDraft], bool]:
    """Whether a block has an op of these kinds."""
    return lambda draft: not draft.kinds.isdisjoint(kinds)


def has_all(*kinds: OpKind) -> Callable[[BlockDraft], bool]:
    """Whether a block has an op of each of these kinds."""
    return lambda draft: draft.kinds >= set(kinds)


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


def has_groups(draft: BlockDraft) -> bool:
    """Whether a block has ragged products."""
    return any(map(is_ragged, draft.costs))


def mask_groups(draft: BlockDraft) -> None:
    """`with_masked_groups`."""
    draft.ops = with_masked_groups(draft.ops, draft.values)


def has_counters(draft: BlockDraft) -> bool:
    """Whether a block numbers elements in 64 bits."""
    return OpKind.GENERATE in draft.kinds and any(map(is_counter, draft.costs))


def keep_strides(draft: BlockDraft) -> None:
    """`with_kept_strides`, without the counters that nobody reads then."""
    made = with_kept_strides(draft.ops, draft.values, draft.buffer)
    if len(made) > len(draft.ops):
        draft.ops = made
        drop_unread(draft)


def has_row_wishes(draft: BlockDraft) -> bool:
    """Whether a reduction of a block may have its operand in the order that it wishes (`may_lay_out_rows`)."""
    summed = OpKind.REDUCE in draft.kinds
    return summed and may_lay_out_rows(draft.ops, draft.kept, draft.values.tensors, draft.buffer)


def has_written_out(draft: BlockDraft) -> bool:
    """Whether a block has a part of a function that was written out."""
    return OpKind.ELEMENTWISE in draft.kinds and any(map(is_written_out, draft.ops))


def join_functions(draft: BlockDraft) -> None:
    """`with_whole_functions`, without the constants that nobody reads then."""
    made = with_whole_functions(draft.ops, draft.kept, draft.values, draft.buffer)
    if len(made) < len(draft.ops):
        draft.ops = made
        drop_unread(draft)


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


def find_stored_weights(draft: BlockDraft) -> None:
    """`stored_weights`, for those behind."""
    draft.stored = stored_weights(draft.ops, draft.values.tensors, draft.buffer)


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


def merge_dots(draft: BlockDraft) -> None:
    """`merge_products`."""
    reads = draft.program.free.reads
    draft.ops = merge_products(draft.ops, draft.values, draft.buffer, reads, apart=draft.stored.keys())


def join_convolutions(draft: BlockDraft) -> None:
    """`with_convolution_epilogues`."""
    draft.ops = with_convolution_epilogues(draft.ops, draft.kept, draft.buffer, draft.values.tensors)


def rewrite_single_ops(draft: BlockDraft) -> None:
    """In one sweep: `split_reduction`, `ConvolutionRewriter`, `with_swapped_operands` and what is read as it is stored."""
    values, transposed = draft.values, draft.program.aliases.transposed
    convolutions = ConvolutionRewriter(values)
    made: list[Op] = []
    for op in draft.ops:
        kind = op.cost.kind
        if kind is OpKind.REDUCE:
            made += split_reduction(op, values)
        elif kind is OpKind.CONVOLUTION:
            made += convolutions.rewrite(with_unpacked_windows(op, draft.stored, draft.buffer))
        elif kind is OpKind.GEMM:
            made.append(with_weights_as_stored(with_swapped_operands(op, transposed), draft.stored, draft.buffer))
        else:
            convolutions.note(op)
            made.append(op)
    draft.ops = made


def has_single_ops(draft: BlockDraft) -> bool:
    """Whether there may be something for `rewrite_single_ops`: products only where operands lie otherwise, or in few bits."""
    products = bool(draft.program.aliases.transposed or draft.stored)
    return not draft.kinds.isdisjoint(_REWRITTEN) or (products and OpKind.GEMM in draft.kinds)


def leaves_unread(draft: BlockDraft) -> bool:
    """Whether rewrites may have left ops without readers."""
    return draft.program.aliases.undone or bool(draft.stored) or not draft.kinds.isdisjoint(_LEAVING)


def drop_unread(draft: BlockDraft) -> None:
    """`without_unread`."""
    draft.ops = without_unread(draft.ops, draft.kept, draft.buffer, draft.program.free)


def resolve_operands(draft: BlockDraft) -> None:
    """Operands, results and what outlives the block as the buffers that they show."""
    buffer = draft.buffer
    views = buffer.keys()
    draft.operands = [
        op.operands if views.isdisjoint(op.operands) else tuple([buffer.get(value, value) for value in op.operands])
        for op in draft.ops
    ]
    draft.outputs = tuple(buffer.get(value, value) for value in draft.block.outputs)
    draft.live_out = frozenset(draft.outputs) | {buffer.get(value, value) for value in draft.nested}


def compute_updates(draft: BlockDraft) -> None:
    """`computed_updates`; `settle_updates` puts those back that fusion leaves alone."""
    computed = computed_updates(draft.ops, draft.operands, draft.live_out, draft.values.tensors)
    draft.updates = {index: draft.ops[index] for index in computed}
    draft.ops = [computed.get(index, op) for index, op in enumerate(draft.ops)]


def settle_updates(draft: BlockDraft) -> None:
    """`done_in_place`."""
    left = done_in_place(draft.updates.keys(), draft.ops, draft.operands, draft.fusions)
    draft.ops = [draft.updates[index] if index in left else op for index, op in enumerate(draft.ops)]


def fuse(rules: Rules) -> Callable[[BlockDraft], None]:
    """The pass that plans fusions by these rules."""

    def run(draft: BlockDraft) -> None:
        ops, tensors = in_bytes(draft.ops, draft.values.tensors)
        draft.fusions = plan_fusion(ops, draft.operands, draft.live_out, tensors, rules)

    return run


def leave_apart(draft: BlockDraft) -> None:
    """Every op is a fusion of its own."""
    draft.fusions = {index: [index] for index in range(len(draft.ops))}


def fill_anew(draft: BlockDraft) -> None:
    """`with_own_fills`."""
    draft.ops = with_own_fills(draft.ops, draft.values, draft.buffer)


def find_kept_targets(draft: BlockDraft) -> None:
    """`kept_targets`: the driver copies them."""
    draft.copied = kept_targets(draft.ops, draft.operands, draft.live_out, draft.writable)


def find_cold_slices(draft: BlockDraft) -> None:
    """`stepped_slices`: the kernels that have them in are cold."""
    draft.cold = stepped_slices(draft.ops, draft.values.tensors)


def find_spread_inputs(draft: BlockDraft) -> None:
    """`spread_inputs` of all loops of the block, before their bodies are lowered."""
    spread = draft.program.spread
    for op, operands in zip(draft.ops, draft.operands, strict=True):
        if op.cost.kind is OpKind.LOOP:
            spread |= spread_inputs(op, operands, draft.ops, spread)


def sink_reads(draft: BlockDraft) -> None:
    """`with_sunk_reads`; a copy of a whole buffer needs the buffer."""
    spread = draft.program.spread
    draft.steps = [
        with_sunk_reads(step, spread) if isinstance(step, Kernel) and step.ops != ("copy",) else step
        for step in draft.steps
    ]


def clear_counters(draft: BlockDraft) -> None:
    """Memsets before the library calls that want one."""
    steps: list[Step] = []
    for step in draft.steps:
        if isinstance(step, Kernel) and clears_first(step):
            steps.append(memset(step))
        steps.append(step)
    draft.steps = steps


def drop_allocations(draft: BlockDraft) -> None:
    """`without_allocations`."""
    draft.steps = without_allocations(draft.steps, frozenset(draft.outputs))


def merge_siblings_as(
    *, into_products: bool, passing_on: bool, gathers_alone: bool = False
) -> Callable[[BlockDraft], None]:
    """The pass that merges siblings, see `merge_siblings`."""

    def run(draft: BlockDraft) -> None:
        tensors = draft.values.tensors
        draft.steps = merge_siblings(
            draft.steps, tensors, into_products=into_products, passing_on=passing_on, gathers_alone=gathers_alone
        )

    return run


def merge_several_outputs(draft: BlockDraft) -> None:
    """`merge_outputs`."""
    roots = {value: root for root in draft.fusions for value in draft.ops[root].results}

    def fused(result: int) -> list[Member] | None:
        root = roots.get(result)
        return None if root is None else [(draft.ops[place], draft.operands[place]) for place in draft.fusions[root]]

    draft.steps = merge_outputs(draft.steps, draft.values.tensors, (*draft.outputs, *draft.nested), fused)


def order_launches(draft: BlockDraft) -> None:
    """`order_for_memory`."""
    held = frozenset(draft.block.inputs).union(draft.outputs)
    draft.steps = order_for_memory(draft.steps, draft.values.tensors, held)


def list_launches(draft: BlockDraft) -> None:
    """`with_less_memory`."""
    held = frozenset(draft.block.inputs).union(draft.outputs)
    draft.steps = with_less_memory(draft.steps, draft.values.tensors, held)
