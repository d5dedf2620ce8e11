"""What XLA:GPU's cost model says about a kernel that joins the reduction that reads its result (multi_output_fusion.cc).

A reduction of few rows has few blocks (`fusion.reduction_grids`), and what joins it is computed in these alone: once for the
reduction, and once more for results beside it (GpuHloCostAnalysis counts each way that a result is asked for elsewhere than at
its own element). Functions that take long then stay in a kernel of their own: a softplus over 32 rows of 8,192, say.
"""

from __future__ import annotations

from meshcast.lower.fused_kernels.kernel_flags import short_name
from meshcast.lower.fusion.cost_model import (
    BYTES_PER_S,
    LAUNCH_S,
    arithmetic_rate,
    kernel_seconds,
    named_cycles,
    rates_of,
)
from meshcast.lower.fusion.reduction_grids import reduction_grid
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.workload import Reduction

_PLAIN_CYCLES = 4.0  # of additions, products and comparisons, on the whole


def is_slower_together(maker: Kernel, reader: Kernel, value: int) -> bool:
    """Whether one kernel takes longer than two.

    `t = c + m - 0.95 min(c, m)` of cycles at the rate of the kernel's lanes and bytes at that of its blocks.

    Args:
        maker: A pass over elements.
        reader: Another one, or a reduction, which reads its result.
        value: That result.
    """
    geometry = reader.geometry
    if reader.kind is not KernelKind.REDUCTION or not isinstance(geometry, Reduction) or not geometry.dims:
        return False  # as many lanes as before
    rate, bytes_per_s, _ = rates_of(reduction_grid(geometry))
    made, reduced = _cycles(maker), _cycles(reader)
    ways = 2 if len(reader.writes) > 1 else 1
    passed = reader.operand_bytes[reader.reads.index(value)] if value in reader.reads else 0
    apart = kernel_seconds(
        made / arithmetic_rate(maker.elements), (maker.read_bytes + maker.written_bytes) / BYTES_PER_S
    )
    apart += kernel_seconds(reduced / rate, reader.read_bytes / bytes_per_s + reader.written_bytes / BYTES_PER_S)
    read = (reader.read_bytes - passed + maker.read_bytes) / bytes_per_s
    written = (reader.written_bytes + maker.written_bytes) / BYTES_PER_S
    return kernel_seconds((made * ways + reduced) / rate, read + written) - apart > LAUNCH_S


def is_slower_repeated(maker: Kernel, reader: Kernel, value: int, made: float, read: float, times: float) -> bool:
    """Whether one pass over elements takes longer than two, as it computes what it hands on several times for each element.

    `c = made * times + read` of cycles; bytes that are asked for again come from a cache, and count for nothing.

    Args:
        maker: A pass over elements.
        reader: Another one, which reads its result.
        value: That result.
        made: Cycles of the first.
        read: Cycles of the second.
        times: How often the second asks for each element.
    """
    rate = arithmetic_rate(maker.elements)
    passed = reader.operand_bytes[reader.reads.index(value)]
    both = sum([size for other, size in zip(maker.reads, maker.operand_bytes, strict=True) if other in reader.reads])
    written = maker.written_bytes + reader.written_bytes
    apart = kernel_seconds(made / rate, (maker.read_bytes + maker.written_bytes) / BYTES_PER_S)
    apart += kernel_seconds(read / rate, (reader.read_bytes + reader.written_bytes) / BYTES_PER_S)
    moved = maker.read_bytes + reader.read_bytes - passed - both + written
    return kernel_seconds((made * times + read) / rate, moved / BYTES_PER_S) - apart > LAUNCH_S


def _cycles(kernel: Kernel) -> float:
    """Of all its arithmetic; functions by the mean of those that it has."""
    slow = [cycles for name in kernel.ops if (cycles := named_cycles(short_name(name), kernel.dtype)) is not None]
    mean = sum(slow) / len(slow) if slow else 0.0
    return _PLAIN_CYCLES * max(0.0, kernel.vector_flops - kernel.transcendentals) + mean * kernel.transcendentals
