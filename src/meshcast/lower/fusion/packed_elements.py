"""What fusion is decided on where elements are packed into bytes: as if each had a byte of its own.

A kernel loads bytes and unpacks each element into a register, and an element's instructions are the larger part of what a loop
costs, so that what is worth computing twice hardly depends on how many elements share a byte. XLA's GPU compiler makes as many
kernels of a chain of quantisers and residual sums in 4 bits as in 8 at every batch that was asked, and of 2 bits one more at one
of them (35 and 34, a batch of 512). Decided on packed bytes, a value that takes few is written down instead, a launch more to
save arithmetic that is as cheap, and a network with fewer bits would be slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.workload import DTYPE_BITS, Op, Tensor

BYTE = 8  # bits


def in_bytes(ops: Sequence[Op], tensors: Sequence[Tensor]) -> tuple[Sequence[Op], Sequence[Tensor]]:
    """The ops with costs, and the types, in which every element that is narrower than a byte takes one; equal where none is."""
    packed = {value for op in ops for value in (*op.operands, *op.results) if _is_packed(tensors[value])}
    if not packed:
        return ops, tensors
    widened = list(tensors)
    for value in packed:
        widened[value] = Tensor(tensors[value].shape, "i8")
    return [op if packed.isdisjoint((*op.operands, *op.results)) else _widened(op, tensors) for op in ops], widened


def _is_packed(tensor: Tensor) -> bool:
    """Whether several elements share a byte."""
    return 0 < DTYPE_BITS.get(tensor.dtype, BYTE) < BYTE


def _widened(op: Op, tensors: Sequence[Tensor]) -> Op:
    """The op with the bytes that it would move were nothing packed."""
    cost = op.cost
    read = (
        tuple(_unpacked(size, tensors[value]) for value, size in zip(op.operands, cost.operand_bytes, strict=False))
        + cost.operand_bytes[len(op.operands) :]
    )
    written = cost.written_bytes
    if op.results and written:
        whole = sum(tensors[value].bytes for value in op.results)
        unpacked = sum(_unpacked(tensors[value].bytes, tensors[value]) for value in op.results)
        written = unpacked if written == whole else round(written * unpacked / whole)
    return replace(op, cost=replace(cost, operand_bytes=read, written_bytes=written))


def _unpacked(size: int, tensor: Tensor) -> int:
    """So many bytes of a tensor, unpacked: of all of it a byte an element, whatever the last byte is filled with."""
    if not _is_packed(tensor):
        return size
    return tensor.elements if size == tensor.bytes else size * BYTE // DTYPE_BITS[tensor.dtype]
