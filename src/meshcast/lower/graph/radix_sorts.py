"""Sorts that XLA:GPU hands to CUB, and those that it would hand to it if it compiled on a GPU.

`sort_rewriter.cc` decides by tables that XLA measured on Hopper and Ampere: by the keys' bits, the rows and their length. It
asks CUB for its scratch, which takes a GPU: a program that is compiled ahead of time keeps its sorts. Of a stable sort nothing
but XLA's own kernel needs the array of places that keeps equal keys in order (`stable_sort_expander.cc`): a radix sort is stable.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from meshcast.workload import DTYPE_BITS, Op, SortGeometry

# XLA's measurements of where CUB is faster on Hopper, (rows more than, elements of a row more than) by bits of a key.
_ROWS_BY_CUB: dict[int, tuple[tuple[int, int], ...]] = {
    16: ((12, 1 << 16), (14, 1 << 15), (16, 1 << 14), (18, 1 << 13), (33, 1 << 12), (66, 1 << 11)),
    32: ((26, 1 << 17), (31, 1 << 16), (38, 1 << 15), (44, 1 << 14), (52, 1 << 13)),
    64: ((55, 1 << 17), (70, 1 << 16), (92, 1 << 15), (354, 1 << 14)),
}
_ROW_BY_CUB = {16: 1 << 9, 32: 22_000, 64: 1 << 17}  # elements of a single row
_PLACES = "stablehlo.iota"


def sorted_by_radix(shape: SortGeometry, bits: int) -> bool:
    """Whether a sort goes to CUB: what the program says, or else XLA's rule for one or two operands along the minor dimension."""
    if shape.radix is not None:
        return shape.radix
    if not shape.minor or shape.operands > 2 or shape.top is not None:
        return False
    if bits <= 8:
        return shape.batch == 1 or (shape.length > 1300 and (shape.batch > 8 or shape.length < 26_000))
    if shape.batch == 1:
        return shape.length > _ROW_BY_CUB.get(bits, math.inf)
    return any(shape.batch > rows and shape.length > length for rows, length in _ROWS_BY_CUB.get(bits, ()))


def as_on_a_gpu(op: Op, launch: Sequence[Op], read: Collection[int]) -> Op:
    """A sort of a program that was compiled ahead of time, as CUB's where a GPU would have made it that; other ops as they are.

    Args:
        op: An op of a launch.
        launch: All ops of the launch.
        read: The launch's results that anything reads.
    """
    shape = op.cost.geometry
    if not isinstance(shape, SortGeometry) or len(op.operands) < 2 or len(op.results) != len(op.operands):
        return op
    made_here = {value for other in launch if other.name == _PLACES for value in other.results}
    if op.operands[-1] not in made_here or op.results[-1] in read:
        return op
    without = replace(shape, operands=shape.operands - 1)
    if not sorted_by_radix(without, DTYPE_BITS.get(op.cost.dtype, 32)):
        return op
    return replace(op, cost=replace(op.cost, geometry=replace(without, radix=True)))
