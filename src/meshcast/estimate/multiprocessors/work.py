"""A launch that was played, as the work that estimates are made of."""

from __future__ import annotations

from meshcast.estimate.explanation import Term
from meshcast.estimate.gpu.machine import GpuWork
from meshcast.estimate.multiprocessors.chip import Chip
from meshcast.estimate.multiprocessors.events import play
from meshcast.estimate.multiprocessors.grid import BlockGrid

FORMULA = "t = launch + (cycles + drain)/f, cycles by events"


def played(
    launch: BlockGrid, chip: Chip, *, moved: float, instructions: float = 0.0, shown: tuple[Term, ...] = ()
) -> GpuWork:
    """Seconds of one kernel.

    Args:
        launch: Its blocks.
        chip: The GPU.
        moved: Bytes between L2 and memory.
        instructions: Of single threads.
        shown: What an explanation has to say of the launch beside its blocks.
    """
    found = play(launch, chip)
    drain = chip.parameters.drain_cycles
    fixed = chip.launch + chip.seconds(drain)
    compute = chip.seconds(max(found.tensor, found.issue))
    # L2 follows the SMs' clock: beside tensor cores, whose power lowers it, its time is none of the memory's.
    from_cache = 0.0 if found.tensor else found.cached / chip.cache_bytes
    return GpuWork(
        time=fixed + chip.seconds(found.cycles),
        compute=compute,
        computing=compute,
        fixed=fixed,
        memory=chip.seconds(max(found.dram / chip.memory_bytes, from_cache)),
        dram_bytes=moved,
        instructions=instructions,
        formula=FORMULA,
        terms=(
            *shown,
            Term("thread blocks", "n", sum(count for count, _ in launch.blocks)),
            Term("of an SM at once", "resident", launch.resident),
            Term("rounds of blocks on an SM", "waves", found.waves),
            Term("cycles from the first block to the last", "cycles", found.cycles),
            Term("of these busy: tensor cores", "tensor", found.tensor),
            Term("of these busy: instruction issue", "issue", found.issue),
            Term("bytes between SMs and L2", "B2", found.cached, "B"),
            Term("bytes between L2 and memory, in bytes read", "B", found.dram, "B"),
            Term("cycles until the last stores arrive", "drain", drain),
            Term("clock", "f", chip.clock, "Hz"),
            Term("an empty kernel", "launch", chip.launch, "s"),
        ),
    )
