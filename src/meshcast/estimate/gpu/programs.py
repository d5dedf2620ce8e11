"""Fusions that XLA has Triton compile, whose tiles its HLO tells: `t = start + |mem + spill, blocks / rate, issue|_p`.

XLA chooses a tile of the result and the warps that share it (`block_level_fusion_config` in its HLO); one thread block, a
program, loads what its tile needs, keeps all of it in registers and writes it. So it is no loop of 512 results a block, and tiles
of one-byte elements go through shared memory like others. A thread has `v = tile / (32 warps)` values of every operand, those of
the rows that it reduces among them. What a thread's registers cannot hold is spilled: written to the caches and read again,

    spill = results / tile * threads * max(0, live - registers) * 2 * 4 bytes / L2 bandwidth,

`live = v * operands`, an operand of two bytes being half of one. That is why a masked softmax with tiles of 64 values a thread
takes twice the time of one without a mask. Column reductions keep the model of XLA's own emitter, which describes them better.
"""

from __future__ import annotations

import math

from meshcast.estimate.gpu.elementwise import SCALARS, instructions, output_elements
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Reduction

LANES = 32
REGISTER = 4  # bytes
_WHOLE_TILES = frozenset({KernelKind.LOOP_FUSION, KernelKind.TRANSPOSE})


def is_program(kernel: Kernel) -> bool:
    """Whether a kernel's tile is known and this model's: loops, transposes, reductions of rows."""
    if not kernel.tile or not kernel.warps:
        return False
    shape = kernel.geometry
    if kernel.kind is KernelKind.REDUCTION:
        return isinstance(shape, Reduction) and shape.reduces_minor and kernel.picked is None
    return kernel.kind in _WHOLE_TILES


def live_values(kernel: Kernel) -> float:
    """Registers' worth of operands that a thread holds at once."""
    elements = _loaded_elements(kernel)
    per_result = max(1, round(elements / max(1.0, output_elements(kernel))))
    values = kernel.tile * (1 << (per_result - 1).bit_length()) / (LANES * kernel.warps)
    operands = sum(
        min(1.0, size / elements / REGISTER) if size >= elements else 1.0
        for size in kernel.operand_bytes
        if size > SCALARS
    )
    return values * max(1.0, operands)


def program(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A fusion in tiles."""
    p = machine.parameters
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    started = math.ceil(output_elements(kernel) / kernel.tile)
    start = started / machine.block_rate
    issued = instructions(kernel, machine, p.tile_instructions)
    issue = issued / machine.instruction_rate
    live = live_values(kernel)
    spilled = started * LANES * kernel.warps * max(0.0, live - p.held_values) * 2 * REGISTER
    spill = spilled / machine.cache_bandwidth
    fixed = machine.launch + p.reduction_cycles / machine.clock
    return GpuWork(
        time=fixed + machine.overlapped(moved.seconds + spill, start, issue),
        compute=max(issue, start),
        computing=issue,
        fixed=fixed,
        memory=moved.seconds + spill,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = start + |mem + spill, blocks, issue|_p",
        terms=(
            *moved.terms,
            *machine.named(
                ("programs", "n", started, ""),
                ("starting them", "blocks = n/R", start, "s"),
                ("values that a thread holds", "live", live, ""),
                ("values that its registers hold", "registers", p.held_values, ""),
                ("bytes that are spilled and read again", "s", spilled, "B"),
                ("spilling", "spill = s/W2", spill, "s"),
                *machine.issuing(issued, issue),
                ("launch, and from the last load to the result", "start", fixed, "s"),
                ("norm of what overlaps", "p", p.overlap, ""),
            ),
        ),
    )


def _loaded_elements(kernel: Kernel) -> float:
    shape = kernel.geometry
    if isinstance(shape, Reduction) and kernel.kind is KernelKind.REDUCTION:
        return float(max(1, math.prod(shape.shape)))
    return max(1.0, output_elements(kernel))
