"""Fused attention on a TPU (Pallas' splash and flash kernels): whole blocks of scores, on arrays that heads may not fill.

A kernel goes through a grid of blocks, b queries by b keys, and computes those that the mask does not hide whole. A query that
sees a keys on average so computes a + e b / 2 scores: e = 1 edge where the mask is causal, 2 where a window ends it too.

    t = t0 + max(mem, arrays + x (ops + functions) + grid, pages)

- arrays: its products at the device's peak, but each head takes whole arrays: D = 128 fills 128 x 128 arrays (up to v5p) and
  one half of 256 x 256 (v6e, TPU7x), `ceil(D / R) R / D` times the passes, for S = q k contracts over D and o = P v
  has D columns;
- ops, functions: the softmax on the vector units, one exponential a score and the ops that the call counts (scale,
  maximum, difference, sum); a share x of it is not hidden behind the arrays. From the bundles that libtpu 0.0.42.1 makes of
  splash attention for v6e, blocks of 512, D = 128: forward 906 a block of which 512 are the arrays', dq 1017 and 768;
- grid: its steps, computed or skipped (a causal grid has all of its blocks, a window's only those near the
  diagonal), each with a fixed cost for its copies and tests;
- mem: queries and results once, keys and values again for every block of queries of every head, whichever are visible.

Where a call does not say its blocks, they are what makes it fastest of 512, 1024 and 2048, as MaxText's recipes tune them.
After Dao, "FlashAttention-2" (2023), for the blocks; JAX's `pallas/ops/tpu/splash_attention` for what a kernel does.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.estimate.explanation import Term
from meshcast.estimate.rates import matrix_rate
from meshcast.estimate.tpu.machine import TimedWork, TpuMachine
from meshcast.lower import Kernel
from meshcast.workload import Attention, attended, element_bytes

BLOCKS = (512, 1024, 2048)


def attention(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """A fused attention call, forward or one of its backward kernels, of contiguous or paged keys."""
    shape = kernel.geometry
    assert isinstance(shape, Attention)
    blocks = (shape.block,) if shape.block else BLOCKS
    return min((_in_blocks(kernel, shape, block, machine) for block in blocks), key=lambda work: work.time)


def _in_blocks(kernel: Kernel, shape: Attention, block: int, machine: TpuMachine) -> TimedWork:
    p = machine.parameters
    visible = shape.batch * shape.heads * attended(shape)
    # An author who counted whole blocks is not counted twice.
    waste = max(1.0, _computed(shape, block) / max(visible, kernel.transcendentals))
    rows = machine.cores.array_rows
    padding = math.ceil(shape.head_dim / rows) * rows / shape.head_dim
    peak = matrix_rate(kernel, machine.device).flops if kernel.matrix_flops else 1.0
    arrays = kernel.matrix_flops * waste * padding * (1 + p.array_loss) / peak
    ops, functions = machine.ops(kernel) * waste, machine.functions(kernel) * waste
    grid = 0.0 if shape.pages else _steps(shape, block) * p.step_cycles / machine.vector_rate
    traffic = machine.traffic(kernel)
    if traffic.hbm_read and not shape.pages:
        again = _read_again(shape, block)
        traffic = replace(traffic, read=traffic.read + again, hbm_read=traffic.hbm_read + again)
    pages = shape.pages * p.page_cycles / machine.device.clock_hz
    busy = arrays + p.softmax_share * (ops + functions) + grid
    fetched, fixed = max(machine.memory(traffic.hbm), pages), machine.fixed(traffic)
    work = TimedWork(time=fixed + max(fetched, busy), compute=busy, memory=fetched, fixed=fixed)
    if not machine.explaining:
        return work
    return replace(
        work,
        formula="t = t0 + max(mem, arrays + x * (ops + functions) + grid, pages)",
        terms=(
            *machine.copies(traffic),
            Term("queries, and keys, of a block", "b", block),
            Term("scores computed over those visible", "waste", waste),
            Term("passes over those that full arrays would take", "padding", padding),
            Term("products on the arrays", "arrays", arrays, "s"),
            Term("vector ops of the softmax", "ops", ops, "s"),
            Term("its exponentials", "functions", functions, "s"),
            Term("share of both that is not hidden", "x", p.softmax_share),
            Term("steps of the grid", "grid", grid, "s"),
            Term("pages, one by one", "pages", pages, "s"),
            Term("fixed cost", "t0", fixed, "s"),
        ),
    )


def _steps(shape: Attention, block: int) -> float:
    """Steps of the grid, of all heads."""
    inner = math.ceil(shape.kv_len / block)
    if 0 < shape.window < shape.kv_len:
        inner = min(inner, math.ceil(shape.window / block) + 1)
    return shape.batch * shape.heads * math.ceil(shape.q_len / block) * inner


def _edges(shape: Attention) -> int:
    """Edges of the mask that blocks stick out of."""
    if shape.q_len == 1 or not shape.causal:
        return 0
    return 2 if 0 < shape.window < shape.kv_len else 1


def _computed(shape: Attention, block: int) -> float:
    """Scores of all blocks that a mask leaves anything of; never more than there are."""
    seen = attended(shape) / shape.q_len + _edges(shape) * block / 2
    return shape.batch * shape.heads * shape.q_len * min(seen, shape.kv_len)


def _read_again(shape: Attention, block: int) -> float:
    """Bytes of keys and values that are read beyond once: by every block of queries of every head, as far as visible."""
    seen = min(attended(shape) / shape.q_len + _edges(shape) * block / 2, shape.kv_len)
    times = shape.heads / shape.kv_heads * max(1.0, shape.q_len / block) * seen / shape.kv_len
    once = 2 * shape.batch * shape.kv_heads * shape.kv_len * shape.head_dim * element_bytes(shape.dtype)
    return max(0.0, times - 1) * once
