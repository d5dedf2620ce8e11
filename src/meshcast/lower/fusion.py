"""Fusion as an XLA-like compiler does it, in one backward sweep over a block.

Every op that can fuse is given the set of fusions that consume it. One consumer: it joins that fusion. Several: it is
computed again in each of them where that moves fewer bytes than writing it out once and reading it back, i.e. where
`n * in < in + out + n * out`; otherwise it becomes a fusion of its own. `in` is what it takes to have the operands:
their own bytes, or what they can be computed from on the fly where that is less (a bf16 tensor behind its f32
conversion). A fusion has one root, and it reads only what comes before that root in program order, so none can depend
on itself.

A reduction joins the fusion of its readers in two cases. As a row: what it reduces is the innermost dimensions, short
enough to stay on chip, and its readers spread the result back over the same elements (softmax, layer norm: XLA's Triton
normalisation fusions). Or with an epilogue: its readers work on the reduced elements and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.workload.graph import Op, OpKind, Reduction, Tensor

# May be computed inside the kernel that consumes them.
FUSIBLE_PRODUCERS = frozenset(
    {
        OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.GENERATE, OpKind.SLICE, OpKind.MOVE, OpKind.TRANSPOSE,
        OpKind.GATHER, OpKind.RNG, OpKind.VIEW,
    }
)  # fmt: skip
# Write into the buffer of their first operand: whatever produces that must have written it to memory.
IN_PLACE = frozenset({OpKind.UPDATE, OpKind.SCATTER})
# May compute their producers on the way in.
FUSIBLE_CONSUMERS = FUSIBLE_PRODUCERS | IN_PLACE | {OpKind.REDUCE}
# Elements of a row that one block keeps in registers: XLA:GPU on an H200 fuses softmax over 8,192 and not over 50,257.
MAX_ROW = 16384

Fusions = dict[int, list[int]]  # root -> members in program order, the root last


def plan_fusion(
    ops: Sequence[Op], operands: Sequence[tuple[int, ...]], live_out: frozenset[int], tensors: Sequence[Tensor]
) -> Fusions:
    """The fusions of a block, by their roots.

    Args:
        ops: The block's live ops, in order.
        operands: Their operands, with views resolved to the values whose bytes they show.
        live_out: Values that must be in memory after the block, or that nested blocks read.
        tensors: Types of all values.
    """
    sweep = _Sweep(ops, operands, live_out, tensors)
    fusions: Fusions = {}
    for index in range(len(ops) - 1, -1, -1):
        for root in sweep.owners(index):
            fusions.setdefault(root, []).append(index)
    for members in fusions.values():
        members.reverse()
    return fusions


class _Sweep:
    def __init__(
        self,
        ops: Sequence[Op],
        operands: Sequence[tuple[int, ...]],
        live_out: frozenset[int],
        tensors: Sequence[Tensor],
    ) -> None:
        self._ops = ops
        self._operands = operands
        self._tensors = tensors
        self._pinned = set(live_out)  # values that must be in memory
        self._readers: dict[int, list[int]] = {}
        self._sources: dict[int, int] = {}  # value -> bytes it can be had for, where that is less than its own
        self._roots: list[frozenset[int]] = [frozenset((index,)) for index in range(len(ops))]
        self._reductions: dict[int, tuple[int, int, bool]] = {}  # root -> how the reductions inside its fusion reduce
        readers, pinned = self._readers, self._pinned
        for index, op in enumerate(ops):
            kind = op.cost.kind
            if kind in FUSIBLE_PRODUCERS and len(op.results) == 1:
                self._sources[op.results[0]] = min(op.cost.written_bytes, self._input_bytes(operands[index], op))
            if kind not in FUSIBLE_CONSUMERS:
                pinned.update(operands[index])
                continue
            if kind in IN_PLACE:
                pinned.update(operands[index][: len(op.results)])
            for value in operands[index]:
                readers.setdefault(value, []).append(index)

    def owners(self, index: int) -> frozenset[int]:
        """Roots of the fusions that compute an op; its readers have been asked before."""
        op, own = self._ops[index], self._roots[index]
        kind = op.cost.kind
        reduces = kind is OpKind.REDUCE
        if not reduces and kind not in FUSIBLE_PRODUCERS:
            return own
        if not self._pinned.isdisjoint(op.results):
            return own
        users = [user for value in op.results for user in self._readers.get(value, ())]
        if not users:
            return own
        owners = self._roots[users[0]]
        for user in users[1:]:
            if self._roots[user] is not owners:
                owners = owners | self._roots[user]
        if reduces:
            fused = len(owners) == 1 and self._takes_reduction(next(iter(owners)), op)
        elif kind is OpKind.TRANSPOSE and any(self._ops[user].cost.kind is OpKind.REDUCE for user in users):
            fused = False  # a reduction wants its input in order
        else:
            fused = len(owners) == 1 or kind is OpKind.GENERATE or self._worth_repeating(index, len(owners))
        if fused:
            self._roots[index] = owners
        return self._roots[index]

    def _worth_repeating(self, index: int, times: int) -> bool:
        op = self._ops[index]
        read = self._input_bytes(self._operands[index], op)
        written = sum(self._tensors[value].bytes for value in op.results)
        return times * read < read + written + times * written

    def _input_bytes(self, operands: tuple[int, ...], op: Op) -> int:
        sources, read = self._sources, 0
        for value, moved in zip(operands, op.cost.operand_bytes, strict=False):
            read += min(moved, sources.get(value, moved))
        return read

    def _takes_reduction(self, root: int, op: Op) -> bool:
        """Whether the fusion of `root` can hold this reduction beside those it has: all must reduce alike."""
        reduction = self._reduction(op)
        if reduction is None or not self._ops[root].results:
            return False
        held = self._reductions.get(root) or self._reduction(self._ops[root])
        if held is not None and held != reduction:
            return False
        before, after, innermost = reduction
        space = before  # elements the fusion runs over
        if self._ops[root].cost.kind is not OpKind.REDUCE:
            space = self._tensors[self._ops[root].results[0]].elements
        as_row = space == before and innermost and before <= MAX_ROW * after
        if as_row or space == after:
            self._reductions[root] = reduction
            return True
        return False

    def _reduction(self, op: Op) -> tuple[int, int, bool] | None:
        """(elements before, elements after, whether the innermost dimensions go)."""
        geometry = op.cost.geometry
        if op.cost.kind is not OpKind.REDUCE or not isinstance(geometry, Reduction):
            return None
        rank, gone = len(geometry.shape), len(geometry.dims)
        innermost = set(geometry.dims) == set(range(rank - gone, rank))
        return math.prod(geometry.shape), self._tensors[op.results[0]].elements, innermost
