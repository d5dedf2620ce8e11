"""What the passes over convolutions do to a block or a program; `pass_tables.py` has their order."""

from __future__ import annotations

from meshcast.lower.convolutions.epilogues import with_convolution_epilogues
from meshcast.lower.convolutions.tpu_images import has_convolutions, with_laid_out_images
from meshcast.lower.draft import BlockDraft, ProgramDraft


def join_convolutions(draft: BlockDraft) -> None:
    """`with_convolution_epilogues`."""
    draft.ops = with_convolution_epilogues(draft.ops, draft.kept, draft.buffer, draft.values.tensors)


def lay_out_images(draft: ProgramDraft) -> None:
    """`with_laid_out_images`."""
    draft.schedule = with_laid_out_images(draft.schedule, draft.values)


def has_images(draft: ProgramDraft) -> bool:
    """Whether a program has convolutions outside its loops."""
    return has_convolutions(draft.schedule)
