"""What the passes of fusion do to a block; `pass_tables.py` has their order."""

from __future__ import annotations

from collections.abc import Callable

from meshcast.lower.draft import BlockDraft
from meshcast.lower.fusion.backward_sweep import plan_fusion
from meshcast.lower.fusion.computed_updates import computed_updates, done_in_place
from meshcast.lower.fusion.packed_elements import in_bytes
from meshcast.lower.fusion.rules import Rules


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
