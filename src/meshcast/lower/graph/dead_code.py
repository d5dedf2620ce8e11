"""Ops that nobody needs: neither do they lead to a result of their block, nor have they an effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshcast.workload import Block, Op, OpKind

# Run though nobody reads their results. Collectives are among them: a halo's data has no reader in the graph.
_EFFECTS = frozenset({OpKind.COLLECTIVE, OpKind.HOST})


def live_ops(block: Block, free: Callable[[Block], set[int]]) -> list[Op]:
    """Ops that lead to an output or have an effect, in order; `free` gives what a nested block reads from outside."""
    needed = set(block.outputs)
    live: list[Op] = []
    for op in reversed(block.ops):
        if op.results and needed.isdisjoint(op.results) and not has_effect(op):
            continue
        live.append(op)
        needed.update(op.operands)
        for inner in op.blocks:
            needed.update(free(inner))
    live.reverse()
    return live


def without_unread(
    ops: Sequence[Op], kept: set[int], buffer: Mapping[int, int], free: Callable[[Block], set[int]]
) -> list[Op]:
    """The ops without those whose results only a rewritten op had read.

    Args:
        ops: A block's ops in order, rewritten.
        kept: Values that outlive the block.
        buffer: The value whose bytes a view shows.
        free: What a nested block reads from outside.
    """
    needed = {buffer.get(value, value) for value in kept} | kept
    live: list[Op] = []
    for op in reversed(ops):
        if op.results and needed.isdisjoint(op.results) and not has_effect(op):
            continue
        live.append(op)
        needed.update(buffer.get(value, value) for value in op.operands)
        for inner in op.blocks:
            needed.update(buffer.get(value, value) for value in free(inner))
    live.reverse()
    return live


def has_effect(op: Op) -> bool:
    """Whether an op, or one inside of it, runs though nobody reads its results."""
    return op.cost.kind in _EFFECTS or any(has_effect(inner) for block in op.blocks for inner in block.ops)
