"""How a loop's threads walk over what they read: the bytes of whole sectors that are fetched for them.

A GPU's caches hand out sectors of 32 bytes (NVIDIA, "CUDA C++ Best Practices Guide", coalesced access to global memory).
Threads that follow each other in the result read runs of neighbouring elements: all of an operand where it is taken as it
lies, a piece of every row where the last dimension is cut, single elements where a slice has steps or where a transpose in a
loop makes another dimension the innermost (unless a block's own results have neighbours among them, which its L1 cache
holds). A run of r bytes that starts anywhere, at multiples of a bytes, takes

    r + 32 - a

bytes of sectors on average, and never more than the distance to the next run, whose sectors it shares.

A gather's runs lie anywhere: what one fetches serves no other. Slices that its fusion writes in another order than they have in
the table are single elements then, a sector each; and what a fusion repeats along outer dimensions (a broadcast of picked rows, a
table that it computes on the way) is fetched every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from meshcast.lower.fusion.coalescing import is_tiled
from meshcast.lower.value_types import LAID_OUT_ANEW
from meshcast.workload import Op, OpKind, Tensor, element_bytes

SECTOR = 32  # bytes
L1_BYTES = 128 * 1024  # of an SM's 256 KiB (NVIDIA, "H100 Tensor Core GPU Architecture"), what others leave
APART = 64  # runs between two that are picked: none shares a sector with another
BLOCK_RESULTS = 512  # of a thread block, which finds in its L1 cache what it has fetched
_CUTTING = frozenset({OpKind.SLICE, OpKind.TRANSPOSE})
_WALKING = _CUTTING | {OpKind.GATHER}
# Those that threads walk across: all, all but the last ones, those between two layouts that tiles do not turn, or none.
Transposes = Literal["loop", "inner", "anew", "none"]
# Read where they write, each element once; what a thread sums it goes over itself.
_PASSING = frozenset({OpKind.ELEMENTWISE, OpKind.MOVE, OpKind.REDUCE})

Member = tuple[Op, tuple[int, ...]]  # an op and its operands, views resolved


class ReadRuns(NamedTuple):
    """Elements that lie side by side, and the distance from one run's begin to the next one's; picked: by a gather."""

    length: int
    pitch: int
    picked: bool = False

    def sectors(self, width: float) -> float:
        """Bytes of sectors for each byte of an operand whose elements have so many."""
        run, pitch = self.length * width, self.pitch * width
        aligned = math.gcd(max(1, int(run)), max(1, int(pitch)), SECTOR)
        return max(1.0, min(pitch, run + SECTOR - aligned) / run)


class Fetched(NamedTuple):
    """Bytes of sectors for each byte that is read of an operand, and whether they are picked, one time like the other."""

    share: float
    picked: bool


def cuts(kinds: set[OpKind]) -> bool:
    """Whether ops of these kinds may read anything but whole rows."""
    return not _WALKING.isdisjoint(kinds)


def fetched_shares(
    members: Sequence[Member],
    inside: set[int],
    tensors: Sequence[Tensor],
    *,
    walked: Transposes,
    results: AbstractSet[int],
) -> Mapping[tuple[int, int], Fetched]:
    """What is fetched for each byte that a member reads from outside, by its place and its operand's, where it is not just that.

    Args:
        members: The ops of a fusion, in program order.
        inside: Values that they compute.
        tensors: Types of all values.
        walked: Which transposes are walked across by the threads that need their results, not by tiles in shared memory.
        results: What the kernel gives.
    """
    runs: dict[int, ReadRuns] = {}  # of values inside, by the shortest that anyone reads; whole ones are left out
    times: dict[int, float] = {}  # how often their elements are walked over, where that is more than once
    last = last_transposes(members, results) if walked == "inner" else set()
    found: dict[tuple[int, int], Fetched] = {}
    for place in range(len(members) - 1, -1, -1):
        op, operands = members[place]
        own = min((runs[value] for value in op.results if value in runs), default=None)
        again = max((times[value] for value in op.results if value in times), default=1.0)
        kind = op.cost.kind
        passed = operands[:1]
        if kind is OpKind.SLICE:
            own = _shorter(own, _sliced(op, tensors))
        elif kind is OpKind.TRANSPOSE and walked != "none":
            skipped = not last.isdisjoint(op.results) or (walked == "anew" and not _is_walked_anew(op, tensors))
            own = own if skipped else _shorter(own, _transposed(op, tensors))
        elif kind is OpKind.GATHER:
            own = _picked(op, own, tensors)
        elif kind is OpKind.BROADCAST:
            own, again = None, again * _repeats(op, tensors)
        elif kind in _PASSING:
            passed = operands
        else:
            continue
        if own is None and again == 1:
            continue
        size = tensors[op.results[0]].elements
        for position, value in enumerate(passed):
            if kind is OpKind.ELEMENTWISE and tensors[value].elements < size:
                continue
            if value in inside:
                if own is not None:
                    runs[value] = min(own, runs.get(value, own))
                picks = _picks(op, tensors) if kind is OpKind.GATHER else 1.0
                times[value] = max(again * picks, times.get(value, 1.0))
            elif own is not None:
                share = own.sectors(element_bytes(tensors[value].dtype))
                if share > 1 or own.picked:
                    found[place, position] = Fetched(share * again if own.picked else share, own.picked)
    return found


def _is_walked_anew(op: Op, tensors: Sequence[Tensor]) -> bool:
    """Whether a transpose of a modelled kernel moves anything, and no tile in shared memory turns it."""
    return op.name == LAID_OUT_ANEW and not is_tiled(op, tensors)


def last_transposes(members: Sequence[Member], results: AbstractSet[int]) -> set[int]:
    """Values of the transposes that become a kernel's results by arithmetic alone."""
    told, found = set(results), set[int]()
    for op, operands in reversed(members):
        if told.isdisjoint(op.results):
            continue
        if op.cost.kind is OpKind.ELEMENTWISE:
            told.update(operands)
        elif op.cost.kind is OpKind.TRANSPOSE:
            found.update(op.results)
    return found


def _shorter(own: ReadRuns | None, cut: ReadRuns | None) -> ReadRuns | None:
    """The shorter runs of two, of which either may be whole ones."""
    return cut if own is None else own if cut is None else min(own, cut)


def _picked(op: Op, own: ReadRuns | None, tensors: Sequence[Tensor]) -> ReadRuns | None:
    """The runs in which a gather's table is read, by those that its result is; a table that L1 holds is there whole."""
    run = op.cost.run
    if not run or tensors[op.operands[0]].bytes <= L1_BYTES:
        return None
    if own is not None and own.pitch <= run:  # cut or turned inside a run
        return ReadRuns(own.length, own.pitch, picked=True)
    return ReadRuns(min(own.length, run) if own is not None else run, run * APART, picked=True)


def _picks(op: Op, tensors: Sequence[Tensor]) -> float:
    """How often an element of a gather's table is picked, at least once."""
    return max(1.0, tensors[op.results[0]].elements / max(1, tensors[op.operands[0]].elements))


def _repeats(op: Op, tensors: Sequence[Tensor]) -> float:
    """How often a broadcast walks over its operand: neighbours in the result that are one element of it are fetched once."""
    whole, part = tensors[op.results[0]], tensors[op.operands[0]]
    inner = max((dim for dim, size in enumerate(whole.shape) if size > 1), default=0)
    order = op.cost.orders[0] if op.cost.orders else ()
    return whole.elements / max(1, part.elements) if inner in order else 1.0


def _sliced(op: Op, tensors: Sequence[Tensor]) -> ReadRuns | None:
    """The runs that a slice takes of its operand; None where all of it is one."""
    whole, part = tensors[op.operands[0]].shape, tensors[op.results[0]].shape
    if len(whole) != len(part):
        return None
    steps = op.cost.strides or (1,) * len(whole)
    inner = 1
    for dim in range(len(whole) - 1, -1, -1):
        if part[dim] != whole[dim] or steps[dim] > 1:
            if steps[dim] > 1:
                return ReadRuns(inner, inner * steps[dim])
            return ReadRuns(inner * max(1, part[dim]), inner * whole[dim]) if math.prod(whole[:dim]) > 1 else None
        inner *= whole[dim]
    return None


def _transposed(op: Op, tensors: Sequence[Tensor]) -> ReadRuns | None:
    """The runs in which a transpose reads its operand: the dimensions that stay innermost, if any."""
    shape = tensors[op.operands[0]].shape
    order = op.cost.orders[0] if op.cost.orders else ()
    if len(order) != len(shape):
        return None
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    moved = [dim for dim in reversed(order) if shape[dim] > 1]  # from the result's innermost dimension outwards
    inner = apart = 1
    for dim in moved:
        if strides[dim] == 1:
            break
        apart *= shape[dim]  # results between neighbours of the operand
    for dim in moved:
        if strides[dim] != inner:
            return ReadRuns(max(inner, BLOCK_RESULTS // apart), strides[dim])
        inner *= shape[dim]
    return None
