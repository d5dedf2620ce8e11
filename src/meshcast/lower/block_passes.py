"""What passes that concern several rooms do to a block, and which blocks have ops of a kind; `pass_tables.py` has their order.

The passes of one room are in its `passes.py`. A function that a table names takes the draft and changes it; one that takes rules
gives such a function.
"""

from __future__ import annotations

from collections.abc import Callable

from meshcast.lower.convolutions.cudnn_convolutions import ConvolutionRewriter
from meshcast.lower.draft import BlockDraft
from meshcast.lower.graph.reduction_stages import split_reduction
from meshcast.lower.products.matrix_products import with_swapped_operands
from meshcast.lower.products.narrow_weights import with_unpacked_windows, with_weights_as_stored
from meshcast.workload import Op, OpKind

_REWRITTEN = (OpKind.REDUCE, OpKind.CONVOLUTION)


def has_any(*kinds: OpKind) -> Callable[[BlockDraft], bool]:
    """Whether a block has an op of these kinds."""
    return lambda draft: not draft.kinds.isdisjoint(kinds)


def has_all(*kinds: OpKind) -> Callable[[BlockDraft], bool]:
    """Whether a block has an op of each of these kinds."""
    return lambda draft: draft.kinds >= set(kinds)


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
