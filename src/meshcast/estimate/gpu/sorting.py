"""Sorts, as XLA:GPU makes them: bitonic in tiles of shared memory, CUB's radix sorts, a kernel for the few largest.

Which of them follows XLA's `sort_rewriter.cc` (`lower.graph.radix_sorts`) and `topk_specializer.cc`.
Times are from the probes `ordering` on an H200 (`data/measured/h200-profile`).
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.machine import BLOCKS_PER_SM, THREADS_PER_SM, WARP, GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import Kernel, sorted_by_radix
from meshcast.workload import DTYPE_BITS, SortGeometry, element_bytes

TILE = 4096  # elements that a block sorts in shared memory
SECTOR = 32  # bytes that are fetched for one that is used, where neighbours lie apart
RADIX_BITS, SEGMENT_BITS = 8, 6  # of a pass of CUB's onesweep and of its segmented sort
OWN_PASS = 0.25  # of a pass, where one block sorts alone and waits for no other
FURTHER_OPERAND = 0.35  # of the instructions of the first that is moved
RADIX_TILE = 4608  # keys that CUB sorts in a single block
TOP_FROM, TOP_MOST = 1024, 16  # XLA's own top-k: rows at least as long, and at most so many of each
TOP_THREADS, TOP_ROWS = 1024, 6  # of a row; rows of an SM whose merges overlap


def sort(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """Sorted rows, or the largest of each row."""
    shape = kernel.geometry
    if not isinstance(shape, SortGeometry):
        moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
        return _work(1, 0.0, moved.seconds, moved.dram_bytes, machine)
    bits = DTYPE_BITS.get(kernel.dtype, 32)
    if shape.top is not None and shape.length >= TOP_FROM and shape.top <= TOP_MOST and bits >= 32:
        return _largest(kernel, shape.top, shape, machine)
    if sorted_by_radix(shape, bits):
        return _radix(kernel, shape, bits, machine)
    return _bitonic(kernel, shape, machine)


def _bitonic(kernel: Kernel, shape: SortGeometry, machine: GpuMachine) -> GpuWork:
    """`d (d + 1) / 2` steps of compare and exchange, `d = ceil(log2 n)`: those within a tile in one kernel.

    Beyond a tile, each of the later `d` is as many single steps through memory as it exceeds the tile's, and one more kernel.
    A kernel takes `launch + start + |issue, latency|_2 + mem`: blocks are started, the busiest SM issues `i` instructions an
    element and step, and a step is a barrier that a lone block waits for.
    """
    p = machine.parameters
    depth = max(1, math.ceil(math.log2(max(2, shape.length))))
    inner = min(depth, TILE.bit_length() - 1)
    operands = 2 if shape.top is not None and element_bytes(kernel.dtype) > 2 else shape.operands
    tile = 1 << inner
    blocks = shape.batch * math.ceil(shape.length / tile)
    busiest = math.ceil(blocks / machine.sms)
    threads = max(WARP, tile // 2)
    waves = math.ceil(blocks / (machine.sms * min(BLOCKS_PER_SM, max(1, THREADS_PER_SM // threads))))
    idle = max(1.0, WARP / (tile / 2))
    instructions = min(tile, shape.length) * p.sort_instructions * (1 + FURTHER_OPERAND * (operands - 1)) * idle
    apart = 1.0 if shape.minor else SECTOR / element_bytes(kernel.dtype)
    moved = traffic(kernel.read_bytes * apart, kernel.read_bytes * apart, machine, recency=kernel.recency)
    started = blocks / machine.block_rate

    def tiled(steps: int) -> float:
        issue = busiest * instructions * steps * machine.sms / machine.instruction_rate
        latency = waves * steps * p.sort_step_cycles / machine.clock
        return started + math.hypot(issue, latency)

    beyond = range(1, depth - inner + 1)
    singles, tails = sum(beyond), len(beyond)
    cores = tiled(inner * (inner + 1) // 2) + tails * tiled(inner)
    kernels = 1 + tails + singles
    return _work(kernels + 1, cores, kernels * moved.seconds, kernels * moved.dram_bytes, machine)


def _radix(kernel: Kernel, shape: SortGeometry, bits: int, machine: GpuMachine) -> GpuWork:
    """CUB: a block's own sort of few keys, onesweep of one long row, or a block a row where there are several.

    Onesweep (Adinets and Merrill, "Onesweep: a faster least significant digit radix sort for GPUs", 2022) counts all digits once
    and then moves keys and values once a pass; a pass waits for its tiles' turns, however few they are.
    """
    p = machine.parameters
    if shape.batch == 1 and shape.length <= RADIX_TILE:
        cores = math.ceil(bits / RADIX_BITS) * p.radix_pass_cycles * OWN_PASS / machine.clock
        return _work(1, cores, 0.0, 0.0, machine)
    # Floats are sorted by integers that are made of them, and go along as values.
    doubled = 2 if shape.radix is None and shape.operands == 1 and kernel.dtype.startswith(("f", "bf")) else 1
    moved = traffic(doubled * kernel.read_bytes, doubled * kernel.read_bytes, machine)
    if shape.batch == 1:
        passes = math.ceil(bits / RADIX_BITS)
        counted = shape.length / (p.radix_counted * machine.sms * machine.clock)
        cores = counted + passes * p.radix_pass_cycles / machine.clock
        memory = passes * moved.seconds / p.radix_share
        launches = 2 * passes + 4
    else:
        passes = math.ceil(bits / SEGMENT_BITS)
        cores = passes * math.ceil(shape.batch / machine.sms) * shape.length / (p.segment_sorted * machine.clock)
        memory = passes * max(0.0, moved.seconds / p.radix_share - cores / passes)
        launches = passes + 1
    return _work(launches, cores, memory, passes * moved.dram_bytes, machine)


def _largest(kernel: Kernel, top: int, shape: SortGeometry, machine: GpuMachine) -> GpuWork:
    """XLA's own kernel: a block a row; each thread keeps its `k` largest in registers, then all are merged.

    `t = launch + (ceil(rows / SMs) n / threads (a + b k) + ceil(rows / (6 SMs)) c k^2) / clock`, at least the bytes read: steps
    keep an SM busy, merges wait, for which an SM has some six rows at a time (those of 8,192 rows of 1,024 numbers).
    """
    p = machine.parameters
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    steps = math.ceil(shape.length / TOP_THREADS)
    stepping = steps * (p.top_k_step_cycles + p.top_k_insert_cycles * top)
    merging = math.ceil(shape.batch / (TOP_ROWS * machine.sms)) * p.top_k_merge_cycles * top**2
    cores = (math.ceil(shape.batch / machine.sms) * stepping + merging) / machine.clock
    beyond = machine.overlapped(cores, moved.seconds) - cores
    return _work(1, cores, beyond, moved.dram_bytes, machine)


def _work(launches: int, cores: float, memory: float, dram: float, machine: GpuMachine) -> GpuWork:
    """Kernels one after the other: what their cores take, and the memory's time beyond it."""
    fixed = launches * machine.launch
    return GpuWork(
        time=fixed + cores + memory,
        compute=cores,
        fixed=fixed,
        memory=memory,
        dram_bytes=dram,
        instructions=cores * machine.instruction_rate,
        formula="t = n launch + cores + mem",
        terms=machine.named(
            ("kernels", "n", launches, ""),
            ("steps, passes and merges", "cores", cores, "s"),
            ("bytes of HBM", "B", dram, "B"),
            ("memory", "mem", memory, "s"),
            ("launch", "launch", machine.launch, "s"),
        ),
    )
