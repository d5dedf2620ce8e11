"""Loops and transposes that XLA has Triton compile, whose tiles its HLO tells: `t = start + |mem, blocks / rate, issue|_p`.

XLA chooses a tile of the result and the warps that share it (`block_level_fusion_config` in its HLO); one thread block, a
program, loads what its tile needs and writes it. So it is no loop of 512 results a block, whose starts bound those of two
bytes, and tiles of one-byte elements go through shared memory like others. Only HLO that was compiled on a device has such
tiles: XLA times these kernels against its own and takes the faster. Reductions along rows are `row_programs`: XLA chooses their
tiles by a model of its own, without a device. Other reductions keep the models of XLA's own emitters.
"""

from __future__ import annotations

import math

from meshcast.base import larger
from meshcast.estimate.gpu.elementwise import instructions, output_elements
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.gpu.memory import traffic
from meshcast.estimate.gpu.row_programs import is_row_program, row_program
from meshcast.lower import Kernel, KernelKind

_IN_TILES = frozenset({KernelKind.LOOP_FUSION, KernelKind.TRANSPOSE})


def is_program(kernel: Kernel) -> bool:
    """Whether a kernel's tile is known and a model of tiles is its own."""
    return bool(kernel.tile) and (kernel.kind in _IN_TILES or is_row_program(kernel))


def turns_tiles(kernel: Kernel) -> bool:
    """Whether elements change their places inside a tile: by way of shared memory, those beyond the result's end too."""
    return kernel.kind is KernelKind.TRANSPOSE or "transpose" in kernel.flags


def program(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A fusion in tiles."""
    if kernel.kind is KernelKind.REDUCTION:
        return row_program(kernel, machine)
    p = machine.parameters
    moved = traffic(kernel.read_bytes, kernel.written_bytes, machine, recency=kernel.recency)
    started = kernel.programs or math.ceil(output_elements(kernel) / kernel.tile)
    start = started / machine.block_rate
    issued = instructions(kernel, machine, p.tile_instructions)
    if turns_tiles(kernel):
        issued = max(issued, started * kernel.tile * p.tile_moved)
    issue = issued / machine.instruction_rate
    waited = p.reduction_cycles + (p.wait_cycles if kernel.recency is not None else 0.0)
    fixed = machine.launch + waited / machine.clock
    return GpuWork(
        time=fixed + machine.overlapped(moved.seconds, start, issue),
        compute=larger(issue, start),
        computing=issue,
        fixed=fixed,
        memory=moved.seconds,
        dram_bytes=moved.dram_bytes,
        instructions=issued,
        formula="t = start + |mem, blocks, issue|_p",
        terms=(
            *moved.terms,
            *machine.named(
                ("programs", "n", started, ""),
                ("starting them", "blocks = n/R", start, "s"),
                *machine.issuing(issued, issue),
                ("launch, and from the last load to the result", "start", fixed, "s"),
                ("norm of what overlaps", "p", p.overlap, ""),
            ),
        ),
    )
