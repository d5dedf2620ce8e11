"""What the passes of frameworks do to a block or a program; `pass_tables.py` has their order."""

from __future__ import annotations

from collections.abc import Callable

from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.frameworks.layerwise_weights import with_layerwise_weights
from meshcast.lower.frameworks.libraries import with_libraries
from meshcast.lower.frameworks.separate_layers import with_separate_layers
from meshcast.lower.frameworks.whole_functions import is_written_out, with_whole_functions
from meshcast.lower.graph.passes import drop_unread
from meshcast.workload import OpKind


def has_written_out(draft: BlockDraft) -> bool:
    """Whether a block has a part of a function that was written out."""
    return OpKind.ELEMENTWISE in draft.kinds and any(map(is_written_out, draft.ops))


def join_functions(draft: BlockDraft) -> None:
    """`with_whole_functions`, without the constants that nobody reads then."""
    made = with_whole_functions(draft.ops, draft.kept, draft.values, draft.buffer)
    if len(made) < len(draft.ops):
        draft.ops = made
        drop_unread(draft)


def choose_libraries(*, padded: bool) -> Callable[[ProgramDraft], None]:
    """The pass that gives attention to its library, see `with_libraries`."""

    def run(draft: ProgramDraft) -> None:
        in_order = draft.layers != "scanned"  # layers of their own are a framework's, whose embeddings are PyTorch's
        draft.schedule = with_libraries(draft.schedule, attention=draft.attention, padded=padded, in_order=in_order)

    return run


def separate_layers(draft: ProgramDraft) -> None:
    """`with_separate_layers`."""
    draft.schedule = with_separate_layers(draft.schedule, draft.values.tensors)


def layerwise_weights(draft: ProgramDraft) -> None:
    """`with_layerwise_weights`."""
    fused_sums = draft.layers == "accumulating"
    draft.schedule = with_layerwise_weights(draft.schedule, draft.values, fused_sums=fused_sums)
