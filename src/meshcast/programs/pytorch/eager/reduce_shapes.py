"""How ATen shares out a sum over threads and blocks, and what it waits for; free of torch.

A sum is one kernel (`reduce_kernel`, ATen/native/cuda/Reduce.cuh, `setReduceConfig`). Threads take four values at a time, round
by round. Where that leaves a thread 256 values or more, sums are cut into parts, a block each: each part is written to memory and
counted, and the block that comes last adds the parts up, those of one column one after another by as many threads as a block is
high. Bytes go at the memory's rate, and no sum is done before

    max(bytes / rate, rounds r) + s + (p + rounds of parts r where there are parts)

with r a load's latency, s a block's exchange and result, p the fence and the count. r, s and p are cycles, by 48 kinds of
sums in steps of recommenders on an H200 (data/measured/h200-embeddings/profile.jsonl.gz, the half that may be looked at).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

THREADS = 512  # of a block at most, fewer where each has several columns
WARP = 32
AT_ONCE = 4  # values that a thread asks for at once, and columns that lie side by side that it sums
FEWEST, MOST = 16, 256  # values of a thread between which blocks are divided
RESIDENT = 132 * 2048  # threads that an H200 holds at once, which blocks are divided for

ROUND = 430.0  # cycles of a round of loads
START, START_COLUMNS = 1400.0, 4300.0  # cycles to a result beside a launch and loads, of rows and of columns
PARTS = 7300.0  # cycles of a part written, fenced and counted, and of what the last block then begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSum:
    """Rounds of loads of a thread, those of the block that adds parts up (0: there are none), and how many blocks there are."""

    rows: bool
    rounds: int
    part_rounds: int
    blocks: int = 1  # that sums are divided over, parts counted apart

    @property
    def waits(self) -> float:
        """Cycles beside a thread's own loads."""
        return (START if self.rows else START_COLUMNS) + (PARTS + self.part_rounds * ROUND if self.part_rounds else 0.0)


def shared_sum(outputs: int, inputs: int, *, rows: bool) -> SharedSum:
    """The way in which `outputs` sums of `inputs` values each are shared out; `rows`: values of a sum lie side by side."""
    columns = next(n for n in (AT_ONCE, 2, 1) if outputs % n == 0) if not rows else 1
    threads = THREADS // columns
    across, along = (inputs, outputs) if rows else (outputs // columns, inputs)
    if rows and outputs == 1 and inputs > 4 * WARP:
        across //= AT_ONCE
    height = min(_power(along, threads), threads // min(_power(across, threads), WARP))
    width = min(_power(across, threads), threads // height)
    step_in, step_out = (width, 1) if rows else (1, width)
    values = _over(inputs, step_in)
    together = values >= min(height * FEWEST, MOST)
    if together:
        values = _over(inputs, step_in * height)
    else:
        step_out *= height
    blocks, most = _over(outputs // columns, step_out), RESIDENT // (width * height)
    parts = 1
    if together and values >= MOST and blocks <= most:
        parts = max(min(_over(most, blocks), _over(values, FEWEST)), _over(values, MOST))
    if parts > 1:
        values = _over(values, parts)
    adding = width * height if rows else height
    added = _over(parts, adding) if parts > 1 else 0
    return SharedSum(rows=rows, rounds=_over(values, AT_ONCE), part_rounds=added, blocks=blocks)


def _over(a: int, b: int) -> int:
    return -(-a // max(1, b))


def _power(n: int, most: int) -> int:
    """The largest power of two that is no larger than either."""
    return 1 << int(math.log2(max(1, min(n, most))))
