"""How often a product's operands are read: its blocks must fit the VMEM that a kernel gets.

The compiler cuts `M x K` by `K x N` into blocks `m x k`, `k x n` and `m x n`, two of each operand at a time (one in use, one on
its way), and sums in f32 where K is cut:

    2 w (m k + k n) + m n (2 w_out + 4 [k < K]) <= V

Where K is whole, the blocks of one operand stay while the other passes: `L + R ceil(M/m)` or `L ceil(N/n) + R` bytes;
where it is cut, both are read again, `L ceil(N/n) + R ceil(M/m)`. The blocks that move least are taken. `V` is XLA:TPU's
limit of what one kernel may have of VMEM, 16 MiB unless `xla_tpu_scoped_vmem_limit_kib` says otherwise.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from meshcast.estimate.products import ArrayProduct
from meshcast.estimate.tpu.machine import TpuMachine, TpuTraffic
from meshcast.workload import Gemm, element_bytes

SIDES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)


def read_again(geometry: Gemm, product: ArrayProduct, traffic: TpuTraffic, machine: TpuMachine) -> float:
    """Bytes that a product reads from memory beyond once; operands that lie in VMEM are not read again from memory.

    Which of them do is not told, only how many bytes: the larger one is taken to lie in memory where they suffice.
    """
    left = product.left * element_bytes(geometry.lhs_dtype)
    right = product.right * element_bytes(geometry.rhs_dtype)
    if traffic.hbm_read < min(left, right) or left + right <= machine.parameters.block_bytes:
        return 0.0
    far_left, far_right = left <= traffic.hbm_read, right <= traffic.hbm_read
    if far_left and far_right and left + right > traffic.hbm_read:
        far_left, far_right = left >= right, left < right
    cores = machine.device.cores
    times = _times(
        -(-product.m // cores), product.n, product.k, element_bytes(geometry.lhs_dtype),
        element_bytes(geometry.out_dtype), far_left, far_right, machine.parameters.block_bytes,
    )  # fmt: skip
    return (times[0] - 1) * left * far_left + (times[1] - 1) * right * far_right


@functools.lru_cache(maxsize=4096)
def _times(
    m: int, n: int, k: int, width: float, out_width: float, far_left: bool, far_right: bool, limit: float
) -> tuple[float, float]:
    """How often each operand is read, with the blocks that move least."""
    shape = (-1, 1, 1), (1, -1, 1), (1, 1, -1)
    rows, columns, deep = (_sides(size).reshape(axis) for size, axis in zip((m, n, k), shape, strict=True))
    whole = deep == k
    operands = rows * deep * far_left + deep * columns * far_right  # what lies in VMEM already takes no more room
    room = 2 * width * operands + rows * columns * (2 * out_width + 4 * ~whole)
    over_rows, over_columns = np.ceil(m / rows), np.ceil(n / columns)
    left, right = m * k * width * far_left, k * n * width * far_right
    # (times the left operand is read, times the right one is), three ways.
    ways = [
        (np.ones_like(over_columns), over_rows, whole & (room <= limit)),
        (over_columns, np.ones_like(over_rows), whole & (room <= limit)),
        (over_columns, over_rows, room <= limit),
    ]
    best = (np.inf, 1.0, 1.0)
    for lefts, rights, fits in ways:
        moved = np.where(fits, left * lefts + right * rights, np.inf)
        at = np.unravel_index(int(np.argmin(moved)), moved.shape)
        both = [float(np.broadcast_to(times, moved.shape)[at]) for times in (lefts, rights)]
        best = min(best, (float(moved[at]), both[0], both[1]))
    return best[1], best[2]


def _sides(size: int) -> npt.NDArray[Any]:
    """Sides that a block may have along a dimension: the dimension itself, or less in even steps."""
    return np.array([*(side for side in SIDES if side < size), size], dtype=np.float64)
