"""Gathers and scatters: 32-byte sectors of uniformly picked rows, atomic updates.

A gather is a loop over its results that reads whole sectors; a table that fits in L2 is served from there. A scatter
with an addition updates each element by an atomic in L2; types that the hardware cannot add atomically (2 bytes) take a
compare-and-swap loop.
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.elementwise import blocks, loop, loop_fusion
from meshcast.estimate.gpu.machine import Machine, Work
from meshcast.estimate.gpu.memory import hit_share
from meshcast.lower.kernel import Kernel
from meshcast.workload.graph import DTYPE_BITS, Indexed

SECTOR = 32


def _sectors(shape: Indexed) -> tuple[float, float]:
    """(elements, bytes in whole sectors) of all picked slices; a slice's row is what is contiguous."""
    element = DTYPE_BITS[shape.table.dtype] / 8
    row = (shape.slice_shape[-1] if shape.slice_shape else 1) * element
    elements = float(shape.count * math.prod(shape.slice_shape))
    rows = elements * element / row if row else 0.0
    return elements, rows * math.ceil(row / SECTOR) * SECTOR


def gather(kernel: Kernel, machine: Machine) -> Work:
    """Slices picked from a table by index."""
    shape = kernel.geometry
    if not isinstance(shape, Indexed):
        return loop_fusion(kernel, machine)
    elements, fetched = _sectors(shape)
    touched = min(fetched, float(shape.table.bytes))
    read = touched if hit_share(touched, kernel.written_bytes, machine) else max(fetched, touched)
    return loop(elements, read, kernel.written_bytes, 0.0, machine)


def scatter(kernel: Kernel, machine: Machine) -> Work:
    """Updates added to slices of a table."""
    shape = kernel.geometry
    if not isinstance(shape, Indexed):
        return loop_fusion(kernel, machine)
    p = machine.parameters
    elements, touched = _sectors(shape)
    touched = min(touched, float(shape.table.bytes))
    small = DTYPE_BITS[shape.table.dtype] < 32
    atomics = (
        elements * (p.compare_swap_cost if small else 1.0) / (p.atomics_per_sm_cycle * machine.sms * machine.clock)
    )
    dram = 2 * touched * (1 - hit_share(touched, touched, machine))
    memory = dram / (machine.device.memory_bandwidth * p.hbm_read)
    started = blocks(elements, machine) / machine.block_rate
    time = machine.launch + machine.overlapped(max(atomics, started), memory)
    return Work(time=time, compute=atomics, memory=memory, dram_bytes=dram)
