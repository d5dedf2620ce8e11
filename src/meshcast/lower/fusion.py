"""Fusion as an XLA-like compiler does it, in one backward sweep over a block.

Every op that can fuse is given the set of fusions that consume it. One consumer: it joins that fusion. Several: it is
computed again in each of them where that moves fewer bytes than writing it out once and reading it back, i.e. where
`n * in < in + out + n * out`; otherwise it becomes a fusion of its own. A fusion has one root, and everything else in it
has all of its uses inside, so no fusion can depend on itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshcast.workload.graph import Op, OpKind, Tensor

# May be computed inside the kernel that consumes them.
FUSIBLE_PRODUCERS = frozenset(
    {
        OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.GENERATE, OpKind.SLICE, OpKind.MOVE, OpKind.TRANSPOSE, OpKind.GATHER,
        OpKind.RNG, OpKind.VIEW,
    }
)  # fmt: skip
# May compute their producers on the way in.
FUSIBLE_CONSUMERS = FUSIBLE_PRODUCERS | {OpKind.REDUCE, OpKind.UPDATE}
# Costs nothing to compute again wherever it is read.
ALWAYS_DUPLICATED = frozenset({OpKind.GENERATE})
# Computing an op again in more kernels than this is never done, whatever the bytes say.
MAX_DUPLICATES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionPlan:
    """For each op of a block: the roots of the fusions that compute it. A root computes itself."""

    roots: tuple[frozenset[int], ...]

    def members(self, root: int) -> list[int]:
        """Ops computed in the fusion of `root`, in program order."""
        return [index for index, owners in enumerate(self.roots) if root in owners]


def plan_fusion(ops: Sequence[Op], live_out: frozenset[int], tensors: Sequence[Tensor], *, enabled: bool = True) -> FusionPlan:
    """The fusion each op of a block ends up in.

    Args:
        ops: The block's live ops, in order, views resolved.
        live_out: Values that must be in memory after the block, or that nested blocks read.
        tensors: Types of all values.
        enabled: False gives every op a kernel of its own.
    """
    consumers: dict[int, list[int]] = {}
    for index, op in enumerate(ops):
        for value in set(op.operands):
            consumers.setdefault(value, []).append(index)
    roots: list[frozenset[int]] = [frozenset()] * len(ops)
    for index in range(len(ops) - 1, -1, -1):
        roots[index] = _owners(index, ops, consumers, live_out, tensors, roots) if enabled else frozenset({index})
    return FusionPlan(roots=tuple(roots))


def _owners(
    index: int,
    ops: Sequence[Op],
    consumers: dict[int, list[int]],
    live_out: frozenset[int],
    tensors: Sequence[Tensor],
    roots: Sequence[frozenset[int]],
) -> frozenset[int]:
    op = ops[index]
    own = frozenset({index})
    if op.cost.kind not in FUSIBLE_PRODUCERS or any(value in live_out for value in op.results):
        return own
    users = [user for value in op.results for user in consumers.get(value, ())]
    if not users or any(ops[user].cost.kind not in FUSIBLE_CONSUMERS for user in users):
        return own
    if op.cost.kind is OpKind.TRANSPOSE and any(ops[user].cost.kind is OpKind.REDUCE for user in users):
        return own  # a reduction wants its input in order
    owners = frozenset().union(*(roots[user] for user in users))
    if len(owners) == 1 or op.cost.kind in ALWAYS_DUPLICATED:
        return owners
    if len(owners) > MAX_DUPLICATES:
        return own
    read = sum(op.cost.operand_bytes)
    written = sum(tensors[value].bytes for value in op.results)
    duplicated, materialised = len(owners) * read, read + written + len(owners) * written
    return owners if duplicated < materialised else own
