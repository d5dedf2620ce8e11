"""How often a fusion computes each of its ops: what is broadcast inside of it is computed anew for every element that needs it.

XLA's emitters compute a fusion's result element by element and have no place for values in between: the index of a result leads
to the indices of what it is made of (`xla/backends/gpu/codegen/emitters`, `elemental_hlo_to_mlir.cc`). With `e(v)` elements of a
value and `n(v)` the times that they are computed in all, a result has `n = e`, and an operand of an op with result `r`

    n(operand) = max over the ops inside that read it of   n(r)                        elementwise, broadcast, slice, transpose, ...
                                                           n(r) e(operand) / e(r)      sums, joins and borders

A thread takes four neighbouring elements of a large result, and a compiler sees that what does not change along the last dimension
is the same for all of them. Programs of Triton's hold tiles, whose rows are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.workload import Op, OpKind, Tensor

NEIGHBOURS = 4  # elements of a thread
# Read every element of an operand once for all of their results.
_WHOLE = frozenset({OpKind.REDUCE, OpKind.SCAN, OpKind.WINDOW, OpKind.MOVE, OpKind.UPDATE, OpKind.GEMM, OpKind.SCATTER})

Member = tuple[Op, tuple[int, ...]]


def repeated_work(
    members: Sequence[Member], inside: set[int], tensors: Sequence[Tensor], *, hero: bool
) -> Sequence[float] | None:
    """For each member how often each element of its result is computed, at least once; None where all are computed once.

    Args:
        members: A fusion's ops in program order, with their operands.
        inside: Values that they give.
        tensors: Types of all values.
        hero: Whether sums are shared out among threads, not loops inside the thread that needs them.
    """
    if not any(op.cost.kind is OpKind.BROADCAST and operands and operands[0] in inside for op, operands in members):
        return None
    often: dict[int, float] = {}
    found = [1.0] * len(members)
    for index in range(len(members) - 1, -1, -1):
        op, operands = members[index]
        kind = op.cost.kind
        times = max((often.get(value, 1.0) for value in op.results), default=1.0)
        if hero and kind is OpKind.REDUCE and times > 1:
            continue
        found[index] = times
        if not op.results:
            continue
        made = tensors[op.results[0]]
        computed = times * made.elements
        for value in operands:
            if value not in inside:
                continue
            size = tensors[value].elements
            if kind in _WHOLE or not size:
                again = times
            elif kind is OpKind.BROADCAST and size < made.elements:
                again = computed / size / (1 if _along_rows(tensors[value], made) else NEIGHBOURS)
            else:
                again = computed / size
            often[value] = max(often.get(value, 1.0), again)
    return found if max(found) > 1 else None


def _along_rows(narrow: Tensor, wide: Tensor) -> bool:
    """Whether a value that is broadcast changes along the last dimension of what it becomes."""
    return bool(narrow.shape) and math.prod(narrow.shape) > 1 and narrow.shape[-1] == wide.shape[-1]
