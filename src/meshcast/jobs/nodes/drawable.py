"""Which runs have one step for all ranks, so that it can be traced or drawn."""

from __future__ import annotations

from meshcast.base import InfeasibleError, UnsupportedError, format_bytes
from meshcast.jobs.pipeline.step import StepParts
from meshcast.jobs.program.run import Run


def check_drawable(run: Run) -> None:
    """Refuses what has no step, or not one step for all ranks.

    Raises:
        InfeasibleError: It does not fit into the devices' memory.
        UnsupportedError: Its devices are not all alike.
    """
    if run.memory.peak > run.device.memory_bytes:
        raise InfeasibleError(
            f"{run.workload.name} needs {format_bytes(run.memory.peak)} of a device that has "
            f"{format_bytes(run.device.memory_bytes)}: there is no step to trace",
            where="memory", fix="see meshcast predict for what would help",
        )  # fmt: skip
    if run.speeds is not None:
        raise not_alike()


def check_drawable_parts(step: StepParts) -> None:
    """Refuses a pipeline with a program whose ranks have no step in common.

    Raises:
        InfeasibleError: One does not fit into the devices' memory.
        UnsupportedError: Devices are not all alike, or passes run in pairs.
    """
    for estimate in {id(each): each for each in step.estimates}.values():
        for program in estimate.programs.values():
            check_drawable(program.run)
    if any(estimate.paired_s for estimate in step.estimates):
        raise UnsupportedError(
            "passes that run in pairs have no trace: their time is modelled, not which kernels run beside which",
            where="--overlap paired-passes", fix="leave it out: passes are then traced one after another",
        )  # fmt: skip


def not_alike() -> UnsupportedError:
    """The error of a run whose ranks have no step in common."""
    return UnsupportedError(
        "devices that are not alike have no trace yet: their model keeps when each kind of rank is done, not when its "
        "kernels run", where="--slow", fix="leave it out, or ask predict --slow for the step of each kind",
    )  # fmt: skip
