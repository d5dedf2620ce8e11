"""What the passes over loops and branches do to a block; `pass_tables.py` has their order."""

from __future__ import annotations

from dataclasses import replace

from meshcast.lower.control_flow.inner_constants import with_inner_constants
from meshcast.lower.control_flow.loop_counters import with_single_counters
from meshcast.lower.control_flow.single_turns import turns_once, without_single_turns
from meshcast.lower.control_flow.sunk_broadcasts import spread_inputs, with_sunk_reads, without_allocations
from meshcast.lower.draft import BlockDraft
from meshcast.lower.kernel import Kernel
from meshcast.workload import OpKind


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


def drop_allocations(draft: BlockDraft) -> None:
    """`without_allocations`."""
    draft.steps = without_allocations(draft.steps, frozenset(draft.outputs))
