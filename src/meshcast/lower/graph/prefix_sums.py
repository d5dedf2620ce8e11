"""Prefix sums as XLA:GPU takes them: of windows, of their sums likewise, and added back (reduce_window_rewriter.cc).

A sum over `n` elements, each with all before it, is a window of `n` up to 16 of them, which every result goes over. Longer ones
are `m = ceil(n / 16)` windows of 16 (padded behind, where 16 does not divide `n`); the last sum of each is cut off, these `m` are
summed likewise, moved on by one, spread over the windows behind them, and added. Up to 16 of them that is one window, longer ones
are pieces themselves. No piece is a call: whoever reads one may compute it, as the cost model decides (`fusion.priority_queue`),
so that a short prefix sum has no array of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import replace

from meshcast.lower.draft import BlockDraft
from meshcast.lower.graph.dead_code import without_unread
from meshcast.lower.value_types import PREFIX_WINDOW, ValueTypes, moved
from meshcast.workload import Cost, Op, OpKind, Reduction, Window, element_bytes

SCANNED = 16  # elements of a window
_SCANS = ("reduce_window", "chlo.scan")  # the second as JAX 0.11 writes it, with what it starts from and its last sum


def scan_levels(length: int) -> int:
    """Levels of windows above the first, until the sums of all fit one: 0 up to 16 elements, 1 up to 256, 2 up to 4,096."""
    levels = 0
    while length > SCANNED:
        length = math.ceil(length / SCANNED)
        levels += 1
    return levels


def has_prefix_sums(draft: BlockDraft) -> bool:
    """Whether a block has sums of all elements before each."""
    return OpKind.SCAN in draft.kinds


def split_prefix_sums(draft: BlockDraft) -> None:
    """`with_split_prefix_sums`."""
    draft.ops = with_split_prefix_sums(draft.ops, draft.kept, draft.values)
    draft.ops = without_unread(draft.ops, draft.kept, draft.buffer, draft.program.free)


def with_split_prefix_sums(ops: Sequence[Op], kept: Set[int], values: ValueTypes) -> list[Op]:
    """The ops with prefix sums as their pieces.

    Args:
        ops: A block's ops in order.
        kept: Values that outlive the block.
        values: Types of all values, to which the pieces' are added.
    """
    read = {value for op in ops for value in op.operands} | kept
    return [made for op in ops for made in (_split(op, values) if _is_plain(op, read) else (op,))]


def _sums_alone(op: Op, read: Set[int]) -> bool:
    """Whether nobody reads what else an op gives."""
    return read.isdisjoint(op.results[1:])


def _is_plain(op: Op, read: Set[int]) -> bool:
    shape = op.cost.geometry
    return (
        op.cost.kind is OpKind.SCAN
        and op.name.endswith(_SCANS)
        and isinstance(shape, Reduction)
        and len(shape.dims) == 1
        and _sums_alone(op, read)
        and len(op.operands) in (1, 2)
        and 0 < op.cost.vector_flops <= math.prod(shape.shape)  # a sum, product or extremum
    )


def _split(op: Op, values: ValueTypes) -> list[Op]:
    shape = op.cost.geometry
    assert isinstance(shape, Reduction)
    return _pieces(op, op.operands[0], op.results[0], shape.shape, shape.dims[0], values)


def _pieces(op: Op, operand: int, result: int, shape: tuple[int, ...], dim: int, values: ValueTypes) -> list[Op]:
    """What computes `result`, of `shape`, from `operand`."""
    length, dtype = shape[dim], values.tensors[op.results[0]].dtype
    if length <= SCANNED:
        return [_window(op, operand, result, shape, dim, length, values)]
    count = math.ceil(length / SCANNED)
    outer, inner = (*shape[:dim], count, *shape[dim + 1 :]), (*shape[:dim], count, SCANNED, *shape[dim + 1 :])
    whole = count * SCANNED == length
    made: list[Op] = []
    if not whole:
        padded = values.new(inner, values.tensors[operand].dtype)
        made.append(_moved(op, OpKind.MOVE, "stablehlo.pad", operand, padded, values))
        operand = padded
    summed, last, before = values.new(inner, dtype), values.new(outer, dtype), values.new(outer, dtype)
    made.append(_window(op, operand, summed, inner, dim + 1, SCANNED, values))
    size = values.tensors[last].bytes
    made.append(_moved(op, OpKind.SLICE, "stablehlo.slice", summed, last, values, read=size))
    if count <= SCANNED:
        made.append(_window(op, last, before, outer, dim, count, values))
    else:
        totals = values.new(outer, dtype)
        made += _pieces(op, last, totals, outer, dim, values)
        made.append(_moved(op, OpKind.MOVE, "stablehlo.pad", totals, before, values))
    spread = values.new(inner, dtype)
    kept = tuple(place for place in range(len(inner)) if place != dim + 1)
    broadcast = _moved(op, OpKind.BROADCAST, "stablehlo.broadcast_in_dim", before, spread, values)
    made.append(replace(broadcast, cost=replace(broadcast.cost, orders=(kept,))))
    added = result if whole else values.new(inner, dtype)
    made.append(_added(op, summed, spread, added, values))
    if not whole:
        size = values.tensors[result].bytes
        made.append(_moved(op, OpKind.SLICE, "stablehlo.slice", added, result, values, read=size))
    return made


def _moved(
    op: Op, kind: OpKind, name: str, operand: int, result: int, values: ValueTypes, read: int | None = None
) -> Op:
    return replace(moved(op, kind, name, operand, result, values, read=read), equal=())


def _window(op: Op, operand: int, result: int, shape: tuple[int, ...], dim: int, length: int, values: ValueTypes) -> Op:
    """Sums of windows of `length` elements, one for each element, padded before; counted as a scan's work, as compilers' are."""
    window = tuple(length if place == dim else 1 for place in range(len(shape)))
    size = math.prod(shape)
    each = size / _elements(op)
    cost = replace(
        op.cost,
        kind=OpKind.WINDOW,
        geometry=Window(shape=shape, window=window, strides=(1,) * len(shape)),
        operand_bytes=(int(size * element_bytes(values.tensors[operand].dtype)),),
        written_bytes=int(size * element_bytes(values.tensors[result].dtype)),
        vector_flops=op.cost.vector_flops * each,
        transcendentals=op.cost.transcendentals * each,
    )
    return replace(op, name=PREFIX_WINDOW, cost=cost, operands=(operand,), results=(result,), equal=())


def _added(op: Op, summed: int, spread: int, result: int, values: ValueTypes) -> Op:
    """The sums of windows and of all windows before them."""
    size = values.tensors[summed].bytes
    share = values.tensors[summed].elements / _elements(op)
    cost = Cost(
        kind=OpKind.ELEMENTWISE,
        dtype=op.cost.dtype,
        vector_flops=op.cost.vector_flops * share,
        transcendentals=op.cost.transcendentals * share,
        operand_bytes=(size, size),
        written_bytes=size,
    )
    return replace(op, name="stablehlo.add", cost=cost, operands=(summed, spread), results=(result,), equal=())


def _elements(op: Op) -> int:
    shape = op.cost.geometry
    assert isinstance(shape, Reduction)
    return math.prod(shape.shape)
