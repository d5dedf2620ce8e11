"""Weights in few bits, widened on the way into a product.

    y = x (w.astype(bf16) * scale),   w in 4 or 8 bits

A product of few rows takes as long as its weights take to arrive, so nobody writes the widened ones to memory: kernels for
such weights (Marlin, Frantar 2024, arXiv:2408.11743; AWQ's; CUTLASS' mixed inputs) widen each tile in registers, and XLA's Triton
GEMM fusions take conversions and the arithmetic on them in as a prologue (`gemm_fusion`). The product then reads the weights
as they are stored, and scales as small as they are.

Every tile of rows widens all weights again: Marlin gains what the bytes promise up to 16 or 32 rows and little beyond a few times
that. With more than `MAX_ROWS` rows the weights are widened once, by a kernel of their own, and the product is cuBLAS'.

Integers that are widened to integers of at most a byte are taken in with any number of rows: nothing but a shift and a mask is
between them, no library has a product of two widths, and the Triton product that has the tile in registers anyway widens it
there, beside the units for matrices (as CUTLASS' mixed inputs do). The product is then one of operands of two types. So are
convolutions of integers, which are products of windows: XLA's GPU compiler has none, and whoever writes one has tiles, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshcast.workload import Convolution, Gemm, Op, OpKind, Tensor, element_bytes

MAX_ROWS = 128
_SPREAD = frozenset({OpKind.BROADCAST, OpKind.GENERATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a widened operand is made of: its type in memory, values with the bytes read of each, the weights first, the work."""

    dtype: str
    reads: tuple[tuple[int, int], ...]
    vector_flops: float
    unpacked: bool = False  # integers of fewer bits than the product's, and nothing else: no matter how many rows


def stored_weights(ops: Sequence[Op], tensors: Sequence[Tensor], buffer: Mapping[int, int]) -> dict[int, Stored]:
    """Operands that products of few rows can widen themselves, by the widened value.

    Args:
        ops: The ops of a block, in order.
        tensors: Types of all values.
        buffer: What a view's value shows.
    """
    if not any(name.endswith(".convert") for name in {op.name for op in ops}):
        return {}
    found: dict[int, Stored] = {}
    made: dict[int, Op] = {}  # who makes a value; asked for behind the first conversion alone
    for op in ops:
        if op.cost.kind is OpKind.ELEMENTWISE and len(op.results) == 1 and not op.cost.transcendentals:
            stored = _converted(op, tensors, buffer)
            if stored is None and found:
                made = made or {value: maker for maker in ops for value in maker.results}
                stored = _scaled(op, tensors, buffer, found, made)
            if stored is not None:
                found[op.results[0]] = stored
    return found


def _converted(op: Op, tensors: Sequence[Tensor], buffer: Mapping[int, int]) -> Stored | None:
    """The stored operand behind a conversion from at most one byte to more."""
    if not op.name.endswith(".convert"):
        return None
    source, result = op.operands[0], tensors[op.results[0]]
    reads = ((buffer.get(source, source), tensors[source].bytes),)
    if is_unpacking(tensors[source].dtype, result.dtype):
        return Stored(dtype=tensors[source].dtype, reads=reads, vector_flops=op.cost.vector_flops, unpacked=True)
    if element_bytes(tensors[source].dtype) > 1 or element_bytes(result.dtype) <= 1 or tensors[source].dtype == "i1":
        return None
    return Stored(dtype=tensors[source].dtype, reads=reads, vector_flops=op.cost.vector_flops)


def _scaled(
    op: Op, tensors: Sequence[Tensor], buffer: Mapping[int, int], found: Mapping[int, Stored], made: Mapping[int, Op]
) -> Stored | None:
    """The stored operand behind arithmetic on widened weights and values broadcast over them: scales, zero points."""
    shown = [buffer.get(value, value) for value in op.operands]
    wide = [value for value in shown if value in found]
    if len(wide) != 1:
        return None
    reads, flops = list(found[wide[0]].reads), found[wide[0]].vector_flops + op.cost.vector_flops
    for value in shown:
        if value in found:
            continue
        spread = made.get(value)
        if spread is None or spread.cost.kind not in _SPREAD:
            return None
        reads += [
            (buffer.get(small, small), tensors[small].bytes)
            for small in spread.operands
            if spread.cost.kind is OpKind.BROADCAST
        ]
    return Stored(dtype=found[wide[0]].dtype, reads=tuple(reads), vector_flops=flops)


def with_weights_as_stored(op: Op, stored: Mapping[int, Stored], buffer: Mapping[int, int]) -> Op:
    """A product of few rows that reads its weights as they are stored; any other op as it is."""
    gemm = op.cost.geometry
    if not stored or not isinstance(gemm, Gemm) or len(op.operands) != 2 or len(op.cost.operand_bytes) != 2:
        return op
    op = _with_unpacked_operands(op, gemm, stored, buffer)
    gemm = op.cost.geometry
    assert isinstance(gemm, Gemm)
    for place, rows in ((1, gemm.m), (0, gemm.n)):
        weights = stored.get(buffer.get(op.operands[place], op.operands[place]))
        if weights is None or weights.unpacked or rows > MAX_ROWS:
            continue
        (first, size), *rest = weights.reads
        operands, moved = list(op.operands), list(op.cost.operand_bytes)
        operands[place], moved[place] = first, size
        cost = replace(
            op.cost,
            operand_bytes=(*moved, *(each for _, each in rest)),
            vector_flops=op.cost.vector_flops + weights.vector_flops,
            geometry=replace(gemm, stored_dtype=weights.dtype),
        )
        return replace(op, operands=(*operands, *(value for value, _ in rest)), cost=cost)
    return op


def is_unpacking(stored: str, widened: str) -> bool:
    """Whether a conversion is one of integers of less than a byte to ones of more bits, of at most a byte."""
    narrow, wide = element_bytes(stored), element_bytes(widened)
    return (
        narrow < wide <= 1 and all(dtype.lstrip("su").startswith("i") for dtype in (stored, widened)) and stored != "i1"
    )


def with_unpacked_windows(op: Op, stored: Mapping[int, Stored], buffer: Mapping[int, int]) -> Op:
    """A convolution of integers that reads its operands in the bits that they are stored in; any other op as it is."""
    shape = op.cost.geometry
    if not stored or not isinstance(shape, Convolution):
        return op
    return _with_unpacked_operands(op, shape, stored, buffer)


def _with_unpacked_operands(
    op: Op, product: Gemm | Convolution, stored: Mapping[int, Stored], buffer: Mapping[int, int]
) -> Op:
    """A product of integers that reads either operand in the bits that it is stored in."""
    operands, moved, types = list(op.operands), list(op.cost.operand_bytes), [product.lhs_dtype, product.rhs_dtype]
    for place, value in enumerate(op.operands[:2]):  # those of an epilogue come behind
        packed = stored.get(buffer.get(value, value))
        if packed is not None and packed.unpacked:
            operands[place], moved[place] = packed.reads[0]
            types[place] = packed.dtype
    if tuple(operands) == op.operands:
        return op
    geometry = replace(product, lhs_dtype=types[0], rhs_dtype=types[1])
    dtype = max(types, key=element_bytes)  # a unit for the wider of both multiplies them where there is one
    return replace(
        op,
        operands=tuple(operands),
        equal=(),
        cost=replace(op.cost, operand_bytes=tuple(moved), geometry=geometry, dtype=dtype),
    )
