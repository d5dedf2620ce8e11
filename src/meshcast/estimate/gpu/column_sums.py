"""Sums along a dimension that is not the innermost, as XLA's emitters run them (`emitters/reduction.cc`, `reduction_base.cc`).

What is reduced is `[major, rows, columns]`. A block of 32 x 32 threads has `32 v` columns, and its 32 warps walk down the rows
side by side, so that a warp takes `rows / 32` steps:
 - `v` elements of a row a thread: 2 of 32 bits; 4 of 16 bits from 128 columns on that are a multiple of 4, else 2; one where
   columns are odd or fewer than 64;
 - loads: one instruction a thread takes all `v` where one block has all columns, or where all steps are unrolled into at most 32
   elements (fewer where several arrays are read); LLVM proves no alignment elsewhere, and loads them one by one. What belongs to
   a row is one load more a step;
 - a warp has few loads under way, whatever they load: a step takes `c` cycles for each, a load's latency over those under way,
   also where lanes beyond the last column are idle (80 columns take as long as 128);
 - two blocks are resident on an SM if a thread has at most 32 registers. Factors of rows take more (56) where a turn of the
   unrolled loop has more than 32 loads and offsets of rows are no powers of two, as ptxas shows for a hundred shapes: one block.

Where `columns` divides 32, a block of 128 threads has all rows of a major index, and walks over `128 v` elements a turn.
A loop that writes what it reads (scores that are masked, kept and reduced) waits for the load of every turn, and elements that
are stored one by one are parts of sectors. No load may pass a store before it, so that each array that is kept is worked out
anew from its operands for each element (`column_chain_cycles`: a load that L1 holds, and the arithmetic behind it): gradients
of a small batch norm that keep three arrays take 1,400 cycles a step, those that keep six 2,800 (H200, `h200-models`). Every
further result goes through shared memory when the first one has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from meshcast.estimate.gpu.elementwise import SCALARS
from meshcast.lower import Kernel
from meshcast.workload import Reduction, element_bytes

TILE = 32  # lanes of a warp, and warps of a block
UNROLLED = 32  # elements of a thread's loads that are joined to vectors where no loop is left
HELD = 32  # loads of a turn whose addresses fit into 32 registers
TURNS = 4  # of an unrolled loop from which ptxas keeps all of its addresses
SERIAL = 16  # steps from which loads wait for what is stored before
SMALL_BLOCK = 128  # threads
RESIDENT = 2  # blocks of 1,024 threads that an SM of 2,048 holds
SMALL_RESIDENT = 16  # blocks of 128
WORD = 4  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnWalk:
    """How a kernel walks down columns."""

    blocks: int
    resident: int  # of an SM
    steps: int  # of a warp, one after the other
    loads: int  # instructions of a warp in a step
    vector: int = 1  # elements of a row that a thread has
    stores: int = 0  # parts of sectors that a warp writes in a step, of what it keeps; 0: behind all loads
    apart: int = 1  # elements of a step that a thread loads and stores one by one
    form: Literal["columns", "few", "loop"] = (
        "columns"  # blocks of 1,024 threads; of 128 with all of few columns; a thread a result
    )


def column_walk(kernel: Kernel, shape: Reduction) -> ColumnWalk:
    """The blocks, steps and loads of a sum of columns."""
    major, rows, columns = folded(shape)
    elements = major * rows * columns
    wide = [size for size in kernel.operand_bytes if size >= elements]
    factors = sum(_of_rows(size, major * rows, major * columns) for size in kernel.operand_bytes)
    width = min((size / elements for size in wide), default=element_bytes(kernel.dtype))
    count = max(1, len(wide))
    if rows < TILE:  # a loop, a thread a result (`IsUnnestedReductionFasterThanElemental`)
        blocks = math.ceil(major * columns / SMALL_BLOCK)
        return ColumnWalk(blocks=blocks, resident=SMALL_RESIDENT, steps=rows, loads=count, form="loop")
    if TILE % columns == 0:
        taken, threads = _small_block(rows * columns, columns, width)
        steps = math.ceil(rows * columns / (taken * threads))
        return ColumnWalk(
            blocks=major, resident=SMALL_RESIDENT, steps=steps, loads=count + factors, vector=taken, form="few"
        )
    vector = vector_of(columns, width)
    across = math.ceil(columns / (TILE * vector))
    steps = math.ceil(rows / TILE)
    joined = columns == TILE * vector or steps * vector * count < UNROLLED + (count == 1)
    loads = count * (1 if joined else vector) + factors
    crowded = factors > 0 and not joined and columns & (columns - 1) > 0 and _is_crowded(rows, vector, count, loads)
    resident = 1 if crowded else RESIDENT
    return ColumnWalk(
        blocks=major * across, resident=resident, steps=steps, loads=loads, vector=vector,
        stores=0 if steps < SERIAL else 1 if joined or vector == 1 else 2 * vector, apart=1 if joined else vector,
    )  # fmt: skip


def _of_rows(size: int, rows: int, columns: int) -> bool:
    """Whether an operand of so many bytes has a number for each row, and not one for each column, which is loaded once."""
    widths = (1, 2, 4, 8)
    return (
        size > SCALARS
        and size in [rows * width for width in widths]
        and size not in [columns * width for width in widths]
    )


def folded(shape: Reduction) -> tuple[int, int, int]:
    """`[major, rows, columns]`: what is kept behind the last dimension that is reduced, and before."""
    rows = math.prod(shape.shape[d] for d in shape.dims)
    columns = math.prod(shape.shape[max(shape.dims) + 1 :])
    return math.prod(shape.shape) // max(1, rows * columns), max(1, rows), max(1, columns)


def vector_of(columns: int, width: float) -> int:
    """Elements of so many bytes that a thread takes of a row (`GetVectorSizeForMlir`)."""
    if columns % 2 or columns < 2 * TILE or width >= 2 * WORD:
        return 1
    if width >= WORD or columns < 4 * TILE or columns % 4:
        return 2
    return 4


def _small_block(elements: int, columns: int, width: float) -> tuple[int, int]:
    """(elements of a thread in a turn, threads) of a block that has few columns whole: at most 32 rows of shared memory."""
    vector, threads = vector_of(elements, width), SMALL_BLOCK
    while vector > 1 and vector * threads // columns > TILE:
        vector //= 2
    shared = vector * threads // columns
    return vector, threads // max(1, shared // TILE)


def _is_crowded(rows: int, vector: int, count: int, loads: int) -> bool:
    """Whether a turn of the unrolled loop has too many loads: as many steps as divide all and make 400 ops of MLIR at most.

    `optimize_loops.cc` counts the ops; a step has about 25 for two elements of an operand, 52 for four, and twice as many where
    every row is compared with the last one.
    """
    steps = math.ceil(rows / TILE)
    most = 16 // count if vector < 4 else 7 if count == 1 else 8 // count
    most = max(1, most // 2) if rows % TILE else most
    unrolled = next((n for n in range(min(steps, most), 1, -1) if steps % n == 0), 1)
    return unrolled * loads > HELD and steps // unrolled >= TURNS
