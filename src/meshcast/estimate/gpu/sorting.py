"""Sorts: bitonic, `n log2(n) (log2(n) + 1) / 2` compare-exchanges; long ones by radix, 8 bits a pass."""

from __future__ import annotations

import math

from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import MemoryTraffic, traffic
from meshcast.lower import Kernel
from meshcast.workload import DTYPE_BITS, SortGeometry

RADIX_FROM = 61440  # XLA's sort_rewriter: longer sorts go to CUB
RADIX_BITS = 8


def sort(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """Sorted rows, or the largest of each row."""
    shape = kernel.geometry
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    if not isinstance(shape, SortGeometry):
        return _passes(1, moved, machine)
    p = machine.parameters
    elements = float(shape.length) * shape.batch
    if shape.top is not None:
        return _bound(elements * p.top_k_instructions, moved.seconds, moved.dram_bytes, machine)
    if shape.length * shape.batch > RADIX_FROM and shape.length > RADIX_FROM:
        passes = math.ceil(DTYPE_BITS.get(kernel.dtype, 32) / RADIX_BITS)
        whole = traffic(2 * passes * kernel.read_bytes, passes * kernel.written_bytes, machine)
        return _passes(2 * passes, whole, machine)
    depth = max(1.0, math.ceil(math.log2(max(2, shape.length))))
    stages = depth * (depth + 1) / 2
    issued = elements * stages * p.sort_instructions * (1 + 0.5 * (shape.operands - 1))
    return _bound(issued, 2 * moved.seconds, 2 * moved.dram_bytes, machine)


def _passes(launches: int, moved: MemoryTraffic, machine: GpuMachine) -> GpuWork:
    terms = (
        *moved.terms,
        *machine.named(("kernels", "n", launches, ""), ("launch", "launch", machine.launch, "s")),
    )
    time = launches * machine.launch + moved.seconds
    return GpuWork(
        time=time, memory=moved.seconds, dram_bytes=moved.dram_bytes, formula="t = n launch + mem", terms=terms
    )


def _bound(issued: float, memory: float, dram: float, machine: GpuMachine) -> GpuWork:
    compute = issued / machine.instruction_rate
    time = 2 * machine.launch + compute + memory
    return GpuWork(
        time=time,
        compute=compute,
        fixed=2 * machine.launch,
        memory=memory,
        dram_bytes=dram,
        instructions=issued,
        formula="t = 2 launch + issue + mem",
        terms=machine.named(
            *machine.issuing(issued, compute),
            ("bytes of HBM", "B", dram, "B"),
            ("memory", "mem", memory, "s"),
            ("launch", "launch", machine.launch, "s"),
        ),
    )
