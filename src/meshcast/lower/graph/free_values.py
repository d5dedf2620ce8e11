"""What blocks read from outside."""

from __future__ import annotations

from collections.abc import Collection

from meshcast.workload import Block, Op


class FreeValues:
    """Values that blocks read and neither take as input nor define: worked out once a block, however often it is asked."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Block, set[int]]] = {}  # by identity, with the block to keep that its own

    def __call__(self, block: Block) -> set[int]:
        """The free values of a block."""
        known = self._found.get(id(block))
        if known is not None:
            return known[1]
        defined = set(block.inputs)
        free: set[int] = set()
        for op in block.ops:
            free.update(op.operands)
            for inner in op.blocks:
                free |= self(inner)
            defined.update(op.results)
        free.update(block.outputs)
        free -= defined
        self._found[id(block)] = block, free
        return free

    def reads(self, op: Op) -> Collection[int]:
        """The values that an op reads: its operands, and those that its blocks read from outside."""
        return set(op.operands).union(*map(self, op.blocks)) if op.blocks else op.operands
