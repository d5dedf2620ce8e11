"""Normalisation diamonds: the reductions that XLA:GPU computes in one pass with what is done with them over their rows.

After softmax_rewriter_triton.cc (openxla/xla, August 2026). A diamond is a binary op over rows, `x - max(x)` or
`d * rsqrt(mean(d * d))`, whose second operand is broadcast from a reduction along the last dimension of what its first operand
is made of. All edges are trivial: unary ops, ops with a splat, squares, none of which anybody else reads; and nobody else reads
the reduction or its broadcast. So a mean that is needed twice (`E[x^2] - E[x]^2`), or a scale that is joined to the statistics
before they are spread over rows, is no diamond: such a norm takes a kernel for each of its reductions. Diamonds are made before
anything else is fused, as Triton kernels, which go on in what reads them if Triton can compute all of that (`row_programs`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from meshcast.workload import Op, OpKind, Reduction, Tensor

# What the second operand of a diamond's root is made by: its broadcast, or a trivial op on that.
_SPREADING = frozenset({OpKind.BROADCAST, OpKind.ELEMENTWISE})


def diamonds(
    ops: Sequence[Op],
    operands: Sequence[tuple[int, ...]],
    kept: Set[int],
    splats: Collection[int],
    tensors: Sequence[Tensor],
) -> dict[int, int]:
    """The places of the reductions of diamonds, and of the ops that these end with: the last that only one reads after another.

    Args:
        ops: A block's ops in order.
        operands: Their operands, with views resolved.
        kept: Values that somebody outside the block reads.
        splats: Values whose elements are all alike: constants, and what is broadcast from one element.
        tensors: Types of all values.
    """
    if not any(op.cost.kind is OpKind.REDUCE for op in ops):
        return {}
    return _Diamonds(ops, operands, kept, splats, tensors).found()


class _Diamonds:
    def __init__(
        self,
        ops: Sequence[Op],
        operands: Sequence[tuple[int, ...]],
        kept: Set[int],
        splats: Collection[int],
        tensors: Sequence[Tensor],
    ) -> None:
        self._ops, self._operands, self._splats, self._tensors = ops, operands, splats, tensors
        self._made = {op.results[0]: index for index, op in enumerate(ops) if len(op.results) == 1}
        self._readers: dict[int, int] = dict.fromkeys(kept, 1)
        self._reader: dict[int, int] = {}  # the last one
        readers, reader = self._readers, self._reader
        for index, read in enumerate(operands):
            for value in set(read) if len(read) > 1 else read:
                readers[value] = readers.get(value, 0) + 1
                reader[value] = index

    def found(self) -> dict[int, int]:
        ops, made = self._ops, self._made
        ends: dict[int, int] = {}
        for index, (op, operands) in enumerate(zip(ops, self._operands, strict=True)):
            if op.cost.kind is not OpKind.ELEMENTWISE or len(operands) != 2:
                continue
            maker = made.get(operands[1])
            if maker is None or ops[maker].cost.kind not in _SPREADING:
                continue  # whatever else it is made by, it is not spread from a reduction
            reduction = self._closed(*operands)
            if reduction is not None:
                ends[reduction] = self._end(index)
        return ends

    def _end(self, index: int) -> int:
        """The last of the elementwise ops over the same rows that each alone read the one before."""
        elements = self._tensors[self._ops[index].results[0]].elements
        while self._is_single(index):
            reader = self._reader.get(self._ops[index].results[0])
            if reader is None or self._ops[reader].cost.kind is not OpKind.ELEMENTWISE:
                break
            if self._tensors[self._ops[reader].results[0]].elements != elements:
                break  # an outer product, say, which is no sum
            index = reader
        return index

    def _closed(self, first: int, second: int) -> int | None:
        """The reduction of the diamond whose root has these operands."""
        spread = self._through(second, OpKind.BROADCAST)
        if spread is None or not self._is_single(spread):
            return None
        reduction = self._through(self._operands[spread][0], OpKind.REDUCE)
        if reduction is None or not self._is_single(reduction) or not self._goes_along_rows(reduction, spread):
            return None
        producer = self._operands[reduction][0]
        while (step := self._trivial(producer)) is not None:
            producer = step
        if producer != first and self._readers.get(first, 0) != 1:
            return None
        return reduction if self._leads_to(producer, first) else None

    def _through(self, value: int, kind: OpKind) -> int | None:
        """The op of a kind that a value is made by, through trivial ones."""
        while (index := self._made.get(value)) is not None:
            if self._ops[index].cost.kind is kind:
                return index
            step = self._trivial(value)
            if step is None:
                return None
            value = step
        return None

    def _leads_to(self, producer: int, value: int) -> bool:
        while value != producer:
            step = self._trivial(value)
            if step is None:
                return False
            value = step
        return True

    def _trivial(self, value: int) -> int | None:
        """What a value that one op reads is made of by a trivial op; None where it is made otherwise."""
        index = self._made.get(value)
        if index is None or self._readers.get(value, 0) > 1 or self._ops[index].cost.kind is not OpKind.ELEMENTWISE:
            return None
        operands = self._operands[index]
        if len(set(operands)) == 1:
            return operands[0]
        plain = [operand for operand in operands if operand not in self._splats]
        return plain[0] if len(plain) == 1 else None

    def _is_single(self, index: int) -> bool:
        return self._readers.get(self._ops[index].results[0], 0) == 1

    def _goes_along_rows(self, reduction: int, spread: int) -> bool:
        geometry = self._ops[reduction].cost.geometry
        if not isinstance(geometry, Reduction) or geometry.dims != (len(geometry.shape) - 1,):
            return False
        before = self._tensors[self._operands[reduction][0]].elements
        return self._tensors[self._ops[spread].results[0]].elements == before
