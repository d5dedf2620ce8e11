"""What cuDNN adds to a convolution's result inside its call: a bias, an addend of the same size, and a ReLU.

After cudnn_fused_conv_rewriter.cc (FuseBiasOrSideInput, FuseRelu; openxla/xla): outwards from a forward convolution, an addition
that alone reads its result joins the call if it adds a vector of channels (once) or an array of the result's own shape (once),
in the result's type; then a maximum with zero. It happens before anything is fused: what follows reads the call's result.
Gradients are calls without an epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from meshcast.lower.convolutions.cudnn_convolutions import is_filter_gradient
from meshcast.workload import Convolution, Op, OpKind, Tensor


def with_convolution_epilogues(
    ops: Sequence[Op], kept: Set[int], buffer: Mapping[int, int], tensors: Sequence[Tensor]
) -> list[Op]:
    """The ops, with such additions and maxima in the convolutions before them.

    Args:
        ops: A block's ops in order.
        kept: Values that somebody outside the block reads.
        buffer: What a view's value shows.
        tensors: Types of all values.
    """
    found = _Epilogues(ops, kept, buffer, tensors)
    joined: dict[int, Op] = {}  # place of the last op of a call -> the call
    dropped: set[int] = set()
    for index, op in enumerate(ops):
        if op.cost.kind is OpKind.CONVOLUTION and (call := found.call(index)) is not None:
            joined[call.last] = _called(op, call, ops[call.last], tensors)
            dropped |= {index, *call.joined}
    return [joined.get(index, op) for index, op in enumerate(ops) if index in joined or index not in dropped]


@dataclass(slots=True)
class _Call:
    """A convolution's call: what it reads besides, and the places of the ops that joined it."""

    last: int
    extra: list[int] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)


class _Epilogues:
    def __init__(self, ops: Sequence[Op], kept: Set[int], buffer: Mapping[int, int], tensors: Sequence[Tensor]) -> None:
        self._ops, self._buffer, self._tensors = ops, buffer, tensors
        self._kept = {buffer.get(value, value) for value in kept}
        self._made = {value: index for index, op in enumerate(ops) for value in op.results}
        self._readers: dict[int, list[int]] = {}
        for index, op in enumerate(ops):
            for value in op.operands:
                self._readers.setdefault(buffer.get(value, value), []).append(index)

    def call(self, index: int) -> _Call | None:
        """The convolution at a place with all that joins it; None where nothing does."""
        op = self._ops[index]
        shape = op.cost.geometry
        if not isinstance(shape, Convolution) or is_filter_gradient(shape) or max(shape.lhs_dilation, default=1) > 1:
            return None
        if 1 < shape.feature_groups == shape.in_channels:
            return None  # depthwise
        if (maker := self._maker(op.operands[1])) is not None and maker.name.endswith("reverse"):
            return None  # the input's gradient
        call = _Call(index)
        vector = addend = False
        value = op.results[0]
        while (reader := self._only_reader(value)) is not None:
            taking = self._ops[reader]
            others = [v for v in taking.operands if self._buffer.get(v, v) != value]
            if len(taking.operands) != 2 or len(others) != 1 or not self._alike(taking.results[0], value):
                break
            other = others[0]
            if taking.name.endswith(".maximum") and self._is_constant(other):
                call.last = reader
                call.joined.append(reader)
                break
            if not taking.name.endswith(".add"):
                break
            source = self._spread_from(other)
            if source is not None and self._tensors[source].elements == shape.out_channels and not vector:
                vector, extra = True, source
            elif source is None and self._alike(other, value) and not addend:
                addend, extra = True, other
            else:
                break
            call.extra.append(extra)
            call.joined.append(reader)
            call.last, value = reader, taking.results[0]
        return call if call.joined else None

    def _only_reader(self, value: int) -> int | None:
        readers = self._readers.get(value, ())
        return readers[0] if len(readers) == 1 and value not in self._kept else None

    def _maker(self, value: int) -> Op | None:
        index = self._made.get(self._buffer.get(value, value))
        return None if index is None else self._ops[index]

    def _spread_from(self, value: int) -> int | None:
        """The smaller value that one is broadcast from; None where it is not."""
        source = None
        while (maker := self._maker(value)) is not None and maker.cost.kind is OpKind.BROADCAST and maker.operands:
            source = value = self._buffer.get(maker.operands[0], maker.operands[0])
        return source

    def _is_constant(self, value: int) -> bool:
        maker = self._maker(self._spread_from(value) or value)
        return maker is not None and maker.cost.kind is OpKind.GENERATE

    def _alike(self, one: int, other: int) -> bool:
        first, second = self._tensors[one], self._tensors[other]
        return first.elements == second.elements and first.dtype == second.dtype


def _called(op: Op, call: _Call, last: Op, tensors: Sequence[Tensor]) -> Op:
    cost = replace(
        op.cost,
        vector_flops=op.cost.vector_flops + float(len(call.joined) * tensors[last.results[0]].elements),
        operand_bytes=(*op.cost.operand_bytes, *[tensors[value].bytes for value in call.extra]),
    )
    return replace(op, cost=cost, operands=(*op.operands, *call.extra), results=last.results)
