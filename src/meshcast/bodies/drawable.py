"""Which runs have one step for all ranks, so that it can be traced or drawn."""

from __future__ import annotations

from meshcast.errors import InfeasibleError, UnsupportedError
from meshcast.run import Run
from meshcast.units import format_bytes


def check_drawable(run: Run) -> None:
    """Refuses what has no step, or not one step for all ranks.

    Raises:
        InfeasibleError: It does not fit into the devices' memory.
        UnsupportedError: Its devices are not all alike, or its passes run in pairs.
    """
    if run.memory.peak > run.device.memory_bytes:
        raise InfeasibleError(
            f"{run.workload.name} needs {format_bytes(run.memory.peak)} of a device that has "
            f"{format_bytes(run.device.memory_bytes)}: there is no step to trace",
            where="memory", fix="see meshcast predict for what would help",
        )  # fmt: skip
    if run.speeds is not None:
        raise UnsupportedError("devices that are not alike have no trace yet", where="--slow", fix="leave it out")
    if run.options.overlapping.paired_passes:
        raise UnsupportedError(
            "passes that run in pairs have no trace: their time is modelled, not which kernels run beside which",
            where="--overlap paired-passes", fix="leave it out: passes are then traced one after another",
        )  # fmt: skip
