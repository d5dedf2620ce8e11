"""Masks and biases of attention's scores that XLA:GPU writes out in full, since a product's epilogue reads them.

A product takes arithmetic behind it into its kernel while each step has a single reader (gemm_fusion.cc, `FuseTowardUsers`).
DotDecomposer has made one dimension of its batch, and what such arithmetic reads besides is named anew with it. A broadcast of
an argument stays one under the new name where it repeats all dimensions of the batch or none. One that repeats some of them (a
mask of each sequence over all heads, a bias of each head over all sequences) does not: the product reads an array then, and the
broadcast is a kernel of its own. What the block itself computes before the broadcast is left to the softmax, mask and all; so
is a causal mask that is made of counters there, but not a padding mask that a loop over layers hands in.

Read off XLA's compilation of twenty forms of attention (masks, biases, both; arguments, computed, handed into loops). The array
is read by what follows the product here instead of by the product: the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from meshcast.lower.value_types import WRITTEN_MASK
from meshcast.workload import Cost, Op, OpKind, Tensor

_BATCHES = 2  # dimensions of a batch from which broadcasts may repeat some


def has_batches(cost: Cost) -> bool:
    """Whether a cost is that of a product over a batch of several dimensions."""
    return cost.kind is OpKind.GEMM and bool(cost.parts) and len(cost.parts[0][0]) >= _BATCHES


def with_written_masks(
    ops: Sequence[Op], inputs: Set[int], kept: Set[int], tensors: Sequence[Tensor], buffer: Mapping[int, int]
) -> list[Op]:
    """The ops with those broadcasts named that are written out for a product's epilogue.

    Args:
        ops: The ops of a block, in order, without views.
        inputs: Values that enter the block.
        kept: Values that are needed after it.
        tensors: Types of all values.
        buffer: What a view's value shows.
    """
    readers: dict[int, list[Op]] = {}
    spread: dict[int, Op] = {}
    for op in ops:
        for value in {buffer.get(value, value) for value in op.operands}:
            readers.setdefault(value, []).append(op)
        if op.cost.kind is OpKind.BROADCAST:
            spread[op.results[0]] = op
    outside = {buffer.get(value, value) for value in kept}
    written: set[int] = set()
    for op in ops:
        if has_batches(op.cost):
            written |= _read_behind(op, readers, spread, inputs, outside, tensors, buffer)
    return [
        replace(op, name=WRITTEN_MASK) if written and op.results[:1] and op.results[0] in written else op for op in ops
    ]


def _read_behind(
    product: Op,
    readers: Mapping[int, Sequence[Op]],
    spread: Mapping[int, Op],
    inputs: Set[int],
    kept: Set[int],
    tensors: Sequence[Tensor],
    buffer: Mapping[int, int],
) -> set[int]:
    """The broadcasts that a product's epilogue reads as arrays."""
    batch = [place for place in range(len(product.cost.parts[0][0])) if tensors[product.results[0]].shape[place] > 1]
    found: set[int] = set()
    value = product.results[0]
    shape = tensors[value].shape
    while len(reading := readers.get(value, ())) == 1 and value not in kept:
        (reader,) = reading
        if reader.cost.kind is not OpKind.ELEMENTWISE or tensors[reader.results[0]].shape != shape:
            break
        if len(reader.operands) == 1 and tensors[reader.results[0]].bytes > tensors[value].bytes:
            break  # what is widened is widened by its reader (triton_tiling_propagation.cc, `IsOutputWorthFusing`)
        for other in reader.operands:
            source = buffer.get(other, other)
            if source == value or tensors[source].elements == 1:
                continue
            broadcast = spread.get(source)
            if broadcast is None:
                return found
            read = broadcast.operands[0]
            if tensors[read].elements == 1:
                continue
            if buffer.get(read, read) not in inputs:
                return found
            if _repeats_some(broadcast, batch, tensors):
                found.add(source)
        value = reader.results[0]
    return found


def _repeats_some(broadcast: Op, batch: Sequence[int], tensors: Sequence[Tensor]) -> bool:
    """Whether a broadcast repeats what it reads along some dimensions of a batch, and not along others."""
    if not broadcast.cost.orders:
        return False
    sizes = tensors[broadcast.operands[0]].shape
    along = {dim for dim, size in zip(broadcast.cost.orders[0], sizes, strict=True) if size > 1}
    return 0 < len(along.intersection(batch)) < len(batch)
