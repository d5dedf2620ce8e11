"""What the passes over the order of launches do to a block or a program; `pass_tables.py` has theirs."""

from __future__ import annotations

from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.schedule.last_uses import with_recency
from meshcast.lower.schedule.launch_order import order_for_memory
from meshcast.lower.schedule.list_order import with_less_memory
from meshcast.lower.schedule.next_uses import with_reuse


def order_launches(draft: BlockDraft) -> None:
    """`order_for_memory`."""
    held = frozenset(draft.block.inputs).union(draft.outputs)
    draft.steps = order_for_memory(draft.steps, draft.values.tensors, held)


def list_launches(draft: BlockDraft) -> None:
    """`with_less_memory`."""
    held = frozenset(draft.block.inputs).union(draft.outputs)
    draft.steps = with_less_memory(draft.steps, draft.values.tensors, held)


def note_recency(draft: ProgramDraft) -> None:
    """`with_recency`."""
    draft.schedule = with_recency(draft.schedule, draft.values.tensors)


def note_placed_recency(draft: ProgramDraft) -> None:
    """`with_recency` of a memory that the compiler fills."""
    draft.schedule = with_recency(draft.schedule, draft.values.tensors, placed=True)


def note_reuse(draft: ProgramDraft) -> None:
    """`with_reuse`."""
    draft.schedule = with_reuse(draft.schedule, draft.values.tensors)
