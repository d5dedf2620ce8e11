"""What the passes over copies do to a block or a program; `pass_tables.py` has their order."""

from __future__ import annotations

from meshcast.lower.copies.donated_copies import with_donated_copies
from meshcast.lower.copies.fused_copies import has_copies, with_fused_copies
from meshcast.lower.copies.kept_targets import kept_targets
from meshcast.lower.copies.loop_copies import with_loop_copies
from meshcast.lower.copies.memsets_and_copies import clears_first, memset
from meshcast.lower.copies.returned_copies import with_returned_copies
from meshcast.lower.copies.updated_slices import with_updated_slices
from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.kernel import Kernel, Step


def find_kept_targets(draft: BlockDraft) -> None:
    """`kept_targets`: the driver copies them."""
    draft.copied = kept_targets(draft.ops, draft.operands, draft.live_out, draft.writable)


def clear_counters(draft: BlockDraft) -> None:
    """Memsets before the library calls that want one."""
    steps: list[Step] = []
    for step in draft.steps:
        if isinstance(step, Kernel) and clears_first(step):
            steps.append(memset(step))
        steps.append(step)
    draft.steps = steps


def copy_donated(draft: ProgramDraft) -> None:
    """`with_donated_copies`."""
    draft.schedule = with_donated_copies(draft.schedule, draft.workload.arguments, draft.values)


def copy_returned(draft: ProgramDraft) -> None:
    """`with_returned_copies`."""
    draft.schedule = with_returned_copies(draft.schedule, draft.workload.arguments, draft.values)


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
