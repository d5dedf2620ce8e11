"""How a loop's threads walk over what they read: the bytes of whole sectors that are fetched for them.

A GPU's caches hand out sectors of 32 bytes (NVIDIA, "CUDA C++ Best Practices Guide", coalesced access to global memory).
Threads that follow each other in the result read runs of neighbouring elements: all of an operand where it is taken as it
lies, a piece of every row where the last dimension is cut, single elements where a slice has steps or where a transpose in a
loop makes another dimension the innermost (unless a block's own results have neighbours among them, which its L1 cache
holds). A run of r bytes that starts anywhere, at multiples of a bytes, takes

    r + 32 - a

bytes of sectors on average, and never more than the distance to the next run, whose sectors it shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from meshcast.workload import Op, OpKind, Tensor, element_bytes

SECTOR = 32  # bytes
BLOCK_RESULTS = 512  # of a thread block, which finds in its L1 cache what it has fetched
_CUTTING = frozenset({OpKind.SLICE, OpKind.TRANSPOSE})
_PASSING = frozenset({OpKind.ELEMENTWISE, OpKind.MOVE})  # read where they write, each element once

Member = tuple[Op, tuple[int, ...]]  # an op and its operands, views resolved


class ReadRuns(NamedTuple):
    """Elements that lie side by side, and the distance from one run's begin to the next one's."""

    length: int
    pitch: int

    def sectors(self, width: float) -> float:
        """Bytes of sectors for each byte of an operand whose elements have so many."""
        run, pitch = self.length * width, self.pitch * width
        aligned = math.gcd(max(1, int(run)), max(1, int(pitch)), SECTOR)
        return max(1.0, min(pitch, run + SECTOR - aligned) / run)


def cuts(kinds: set[OpKind]) -> bool:
    """Whether ops of these kinds may read anything but whole rows."""
    return not _CUTTING.isdisjoint(kinds)


def fetched_shares(
    members: Sequence[Member], inside: set[int], tensors: Sequence[Tensor], *, transposing: bool
) -> Mapping[tuple[int, int], float]:
    """Bytes of sectors for each byte that a member reads from outside, by its place and its operand's, where they are more.

    Args:
        members: The ops of a fusion, in program order.
        inside: Values that they compute.
        tensors: Types of all values.
        transposing: Whether transposes are walked through by the loop itself, not by tiles in shared memory.
    """
    runs: dict[int, ReadRuns] = {}  # of values inside, by the shortest that anyone reads; whole ones are left out
    found: dict[tuple[int, int], float] = {}
    for place in range(len(members) - 1, -1, -1):
        op, operands = members[place]
        own = min((runs[value] for value in op.results if value in runs), default=None)
        kind = op.cost.kind
        if kind in _CUTTING and (transposing or kind is OpKind.SLICE):
            cut = _sliced(op, tensors) if kind is OpKind.SLICE else _transposed(op, tensors)
            own = min((each for each in (own, cut) if each is not None), default=None)
            walked = operands[:1]
        elif kind in _PASSING:
            walked = operands
        else:
            continue
        if own is None:
            continue
        size = tensors[op.results[0]].elements
        for position, value in enumerate(walked):
            if kind is OpKind.ELEMENTWISE and tensors[value].elements < size:
                continue
            if value in inside:
                runs[value] = min(own, runs.get(value, own))
            elif (share := own.sectors(element_bytes(tensors[value].dtype))) > 1:
                found[place, position] = share
    return found


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
