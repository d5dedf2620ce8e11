"""How many blocks and threads XLA:GPU launches for a reduction: few rows or narrow columns leave most of a GPU idle.

After the reduction emitters (openxla/xla, xla/backends/gpu/codegen/emitters/reduction.cc, August 2026). The cost model of
fusion counts only the lanes and the memory rate that these blocks reach (CalculateEffectiveFlopsPerNs and AdjustBandwidth in
gpu_performance_model_base.cc), so that what a reduction would compute or read in few blocks is a kernel of its own.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from meshcast.workload import Reduction

_WARP = 32
_MOST_THREADS = 1024  # that reduce one row (MinThreadsXRowReduction), and of a block that reduces columns
_ROW_BLOCK = 256  # threads of a block that reduces several rows
_PER_THREAD = 16  # elements of a row
_NARROW_BLOCK = 128  # threads of a block that reduces columns whose number divides a warp
_VECTOR = 2  # elements of four bytes that a thread loads at once
_NARROW_VECTOR = 4  # of less than four bytes, in columns (GetVectorSizeForMlir)
CORES = 132


class LaunchGrid(NamedTuple):
    """Blocks of a launch, and threads of each."""

    blocks: int
    threads: int


@functools.lru_cache(maxsize=4096)
def reduction_grid(geometry: Reduction, *, by_rows: bool = False, narrow: bool = False) -> LaunchGrid:
    """The launch of a reduction, of elements of four bytes.

    Args:
        geometry: What is reduced.
        by_rows: Whether its operand may lie as it wants.
        narrow: Whether what it reads has elements of less than four bytes.
    """
    shape, dims = geometry.shape, frozenset(geometry.dims)
    last = max(dims)
    minor = math.prod(shape[last + 1 :])
    if by_rows and minor > 1:
        length = math.prod([shape[dim] for dim in dims])
        return _rows(math.prod(shape) // max(1, length), length)
    if minor == 1:
        # Of other dimensions that go as well a thread takes one element after the other.
        first = next((dim + 1 for dim in range(last, -1, -1) if dim not in dims and shape[dim] > 1), 0)
        kept = math.prod([size for dim, size in enumerate(shape) if dim not in dims])
        return _rows(kept, math.prod(shape[first : last + 1]))
    major = math.prod(shape[: min(dims)])
    if _WARP % minor == 0:
        return LaunchGrid(major, _NARROW_BLOCK)
    vector = _VECTOR if minor % 2 == 0 and minor >= 2 * _WARP else 1
    if narrow and minor % _NARROW_VECTOR == 0 and minor >= _NARROW_VECTOR * _WARP:
        vector = _NARROW_VECTOR
    return LaunchGrid(major * math.ceil(minor / (_WARP * vector)), _MOST_THREADS)


def _rows(kept: int, row: int) -> LaunchGrid:
    if row and row & (row - 1) == 0:
        vector = min(row, _VECTOR)
        while vector > 1 and _short_rows(kept, row, vector).blocks < CORES:
            vector //= 2
        if row <= _WARP * vector:
            return _short_rows(kept, row, vector)
    threads = min(_MOST_THREADS, _WARP * math.ceil(row / (_PER_THREAD * _WARP)))
    beside = max(1, min(kept, _ROW_BLOCK // threads))
    return LaunchGrid(math.ceil(kept / beside), beside * threads)


def _short_rows(kept: int, row: int, vector: int) -> LaunchGrid:
    """Several rows in a warp."""
    threads = row // vector
    beside = max(1, min(kept, _ROW_BLOCK // threads))
    return LaunchGrid(math.ceil(kept / beside), beside * threads)
