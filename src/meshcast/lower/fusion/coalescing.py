"""Transposes inside a loop spoil what the loop reads: how XLA:GPU's cost model counts that.

A transpose that makes another dimension the innermost has neighbouring threads read elements that lie apart. XLA takes a fusion
with such a transpose for one that uses a single element of every 64 bytes it loads, of all of its operands
(`IsReadCoalescedHeuristic` in coalescing_analysis.cc, `GetCoalescingUtilizationRate` in gpu_performance_model_base.cc); what is
broadcast or counts up is read from nowhere, and is left out. A kernel that is made for a transpose turns tiles in shared
memory, and loads whole lines, if both dimensions are long enough (`GetDescriptionForTiledTransposeEmitter`: 16 each, or 8 with
8,192 together), or if the elements are narrow and fill words of four bytes together with the dimension between (`_is_packed`).
Transposes that a program asks for are mostly other names of the same bytes once layouts are assigned: this is asked of those
alone that are there because two layouts meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from meshcast.lower.layouts.transposes import turns
from meshcast.lower.value_types import LAID_OUT_ANEW
from meshcast.workload import Op, OpKind, Tensor, element_bytes

_WORD = 4  # bytes
_BANKS = 32  # of shared memory, a word each (kNumShmemBanks)
_FILLED = 10  # words of a row and of a column of its tile that a packed transpose has at least
LINE = 64  # bytes that a load takes from memory (dram_to_l2_transaction_size_bytes)
_LONG, _SHORT, _LARGE = 16, 8, 64 * 128  # elements: of both dimensions, or of both where they have so many together


_SPREADING = frozenset({OpKind.BROADCAST, OpKind.GENERATE})


class Loaded(NamedTuple):
    """Bytes that are loaded for one that is needed: by a loop that an op is inside, and by a kernel of its own."""

    inside: float
    alone: float


ORDERLY = Loaded(1.0, 1.0)


def spoiled_reads(
    ops: Sequence[Op], operands: Sequence[tuple[int, ...]], tensors: Sequence[Tensor]
) -> dict[int, Loaded]:
    """The places of transposes between two layouts, with what they make of a loop's reads.

    Args:
        ops: The ops of a block, in order.
        operands: Theirs, views resolved.
        tensors: Types of all values.
    """
    places = [place for place, op in enumerate(ops) if op.name == LAID_OUT_ANEW]
    if not places:
        return {}
    spread: set[int] = set()  # broadcast, counting up, or a function of one such value: read from nowhere
    for op, read in zip(ops, operands, strict=True):
        kind = op.cost.kind
        if kind in _SPREADING or (kind is OpKind.ELEMENTWISE and len(read) == 1 and read[0] in spread):
            spread.update(op.results)
    found: dict[int, Loaded] = {}
    for place in places:
        inside = loaded_for_one(ops[place], tensors)
        if inside > 1 and operands[place][0] not in spread:
            found[place] = Loaded(inside, 1.0 if is_tiled(ops[place], tensors) else inside)
    return found


def loaded_for_one(op: Op, tensors: Sequence[Tensor]) -> float:
    """Bytes that a loop loads for one that it needs once this op is inside: 1 unless it changes the innermost dimension."""
    return LINE / element_bytes(tensors[op.results[0]].dtype) if turns(op, tensors) else 1.0


def is_tiled(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a kernel of its own turns a transpose by tiles."""
    shape = tensors[op.operands[0]].shape
    order = [dim for dim in (op.cost.orders[0] if op.cost.orders else ()) if dim < len(shape) and shape[dim] > 1]
    if not order:
        return False
    one = _run(order, max(order), shape)
    other = _run(order, order[-1], shape)
    if min(one, other) >= _LONG or (min(one, other) >= _SHORT and one * other >= _LARGE):
        return True
    width = element_bytes(tensors[op.results[0]].dtype)
    return order[-1] != max(order) and _is_packed(one, _between(order, shape), other, width)


def _is_packed(inner: int, between: int, outer: int, width: float) -> bool:
    """Whether a kernel turns `[outer, between, inner]` to `[inner, between, outer]` by tiles of whole words of four bytes.

    A tile is 32 words square, and has as many of the inner rows side by side as fit: rows and columns of at least ten words, and
    of whole ones (`GetPackedTransposeTileSizes` in ir_emission_utils.cc; as compiled by XLA of jax 0.11.2).
    """
    if width >= _WORD:
        return False
    held = int(_WORD / width)
    side = _BANKS * held
    columns = min(inner, side) * min(between, side // min(inner, side))
    rows = min(outer, side)
    is_whole = rows % held == columns % held == outer % rows % held == 0
    return is_whole and min(rows, columns) >= _FILLED * held


def _between(order: Sequence[int], shape: Sequence[int]) -> int:
    """Elements of the dimensions that are the last but one both before and after; 1 where other ones are."""
    starts = [at for at, dim in enumerate(order) if not at or order[at - 1] != _before(order, dim)]
    if len(starts) < 3:
        return 1
    outwards = sorted((order[at] for at in starts), reverse=True)
    after = starts[-2]
    return _run(order, order[starts[-1] - 1], shape) if order[after] == outwards[1] else 1


def _run(order: Sequence[int], last: int, shape: Sequence[int]) -> int:
    """Elements of the dimensions that lie together before and after, of which `last` is the innermost."""
    at = order.index(last)
    size = shape[last]
    while at and order[at - 1] == _before(order, order[at]):
        at -= 1
        size *= shape[order[at]]
    return size


def _before(order: Sequence[int], dim: int) -> int:
    """The next longer-than-one dimension outwards of one, as the operand lies; -1 where it is the outermost."""
    return max([other for other in order if other < dim], default=-1)
