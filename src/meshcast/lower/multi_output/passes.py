"""What the passes of multi-output fusion do to a block; `pass_tables.py` has their order."""

from __future__ import annotations

from collections.abc import Callable

from meshcast.lower.draft import BlockDraft
from meshcast.lower.fused_kernels.fetched_sectors import Member
from meshcast.lower.multi_output.merged_outputs import merge_outputs
from meshcast.lower.multi_output.siblings import merge_siblings


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
