"""What the passes over a program's whole schedule do; `pass_tables.py` has their order."""

from __future__ import annotations

from collections.abc import Callable

from meshcast.lower.copy_fusion import has_copies, with_fused_copies
from meshcast.lower.donated_copies import with_donated_copies
from meshcast.lower.draft import ProgramDraft
from meshcast.lower.halves import has_halves, with_halves
from meshcast.lower.kernel import Kernel
from meshcast.lower.laid_out_images import has_convolutions, with_laid_out_images
from meshcast.lower.layerwise import with_layerwise_weights
from meshcast.lower.loop_copies import with_loop_copies
from meshcast.lower.narrow_operands import with_both_orders
from meshcast.lower.other_libraries import with_libraries
from meshcast.lower.recency import with_recency
from meshcast.lower.returned import with_returned_copies
from meshcast.lower.reuse import with_reuse
from meshcast.lower.separate_layers import with_separate_layers
from meshcast.lower.updated_slices import with_updated_slices


def copy_donated(draft: ProgramDraft) -> None:
    """`with_donated_copies`."""
    draft.schedule = with_donated_copies(draft.schedule, draft.workload.arguments, draft.values)


def copy_returned(draft: ProgramDraft) -> None:
    """`with_returned_copies`."""
    draft.schedule = with_returned_copies(draft.schedule, draft.workload.arguments, draft.values)


def lay_out_images(draft: ProgramDraft) -> None:
    """`with_laid_out_images`."""
    draft.schedule = with_laid_out_images(draft.schedule, draft.values)


def has_images(draft: ProgramDraft) -> bool:
    """Whether a program has convolutions outside its loops."""
    return has_convolutions(draft.schedule)


def copy_loop_state(draft: ProgramDraft) -> None:
    """`with_loop_copies`."""
    inputs = zip(draft.schedule.inputs, draft.workload.arguments, strict=False)
    donated = frozenset([value for value, argument in inputs if argument.donated])
    draft.schedule = with_loop_copies(draft.schedule, draft.values, donated)


def has_loops(draft: ProgramDraft) -> bool:
    """Whether something of a program is a loop or a branch."""
    return any(not isinstance(step, Kernel) for step in draft.schedule.steps)


def may_stack_parts(draft: ProgramDraft) -> bool:
    """Whether turns of loops may cut parts out of stacks: layers of frameworks have arrays of their own."""
    return draft.layers == "scanned" and has_loops(draft)


def keep_updated_slices(draft: ProgramDraft) -> None:
    """`with_updated_slices`."""
    draft.schedule = with_updated_slices(draft.schedule)


def fuse_copies(draft: ProgramDraft) -> None:
    """`with_fused_copies`."""
    draft.schedule = with_fused_copies(draft.schedule)


def copies_something(draft: ProgramDraft) -> bool:
    """Whether a program may have copies."""
    return has_copies(draft.schedule.steps)


def copy_narrow_operands(draft: ProgramDraft) -> None:
    """`with_both_orders`."""
    draft.schedule = with_both_orders(draft.schedule, draft.values, saved=draft.layers == "accumulating")


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


def note_recency(draft: ProgramDraft) -> None:
    """`with_recency`."""
    draft.schedule = with_recency(draft.schedule, draft.values.tensors)


def note_placed_recency(draft: ProgramDraft) -> None:
    """`with_recency` of a memory that the compiler fills."""
    draft.schedule = with_recency(draft.schedule, draft.values.tensors, placed=True)


def note_reuse(draft: ProgramDraft) -> None:
    """`with_reuse`."""
    draft.schedule = with_reuse(draft.schedule, draft.values.tensors)


def note_halves(draft: ProgramDraft) -> None:
    """`with_halves`."""
    draft.schedule = with_halves(draft.schedule, draft.values.tensors)


def some_are_halves(draft: ProgramDraft) -> bool:
    """Whether a program has values of f16."""
    return has_halves(draft.values.tensors)
