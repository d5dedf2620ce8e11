"""What the passes over kernels alone do to a block or a program; `pass_tables.py` has their order."""

from __future__ import annotations

from meshcast.lower.draft import BlockDraft, ProgramDraft
from meshcast.lower.fused_kernels.cold_slices import stepped_slices
from meshcast.lower.fused_kernels.f16_bytes import has_halves, with_halves


def find_cold_slices(draft: BlockDraft) -> None:
    """`stepped_slices`: the kernels that have them in are cold."""
    draft.cold = stepped_slices(draft.ops, draft.values.tensors)


def note_halves(draft: ProgramDraft) -> None:
    """`with_halves`."""
    draft.schedule = with_halves(draft.schedule, draft.values.tensors)


def some_are_halves(draft: ProgramDraft) -> bool:
    """Whether a program has values of f16."""
    return has_halves(draft.values.tensors)
