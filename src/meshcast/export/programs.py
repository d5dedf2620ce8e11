"""The trace of a program whose ranks all run the same."""

from __future__ import annotations

import numpy as np

from meshcast.errors import InfeasibleError, UnsupportedError
from meshcast.export.flattening import Detail, program_body
from meshcast.export.job import JobTrace, classes_of
from meshcast.export.job_groups import JobGroups
from meshcast.run import Run


def program_trace(run: Run, detail: Detail) -> JobTrace:
    """What every rank of a program does.

    Raises:
        InfeasibleError: It does not fit into the devices' memory, so there is no step.
        UnsupportedError: Its devices are not all alike.
    """
    if run.memory.peak > run.device.memory_bytes:
        raise InfeasibleError(
            f"{run.workload.name} needs {run.memory.peak:,} bytes of a device that has {int(run.device.memory_bytes):,}: "
            "there is no step to trace",
            where="memory", fix="see meshcast predict for what would help",
        )  # fmt: skip
    if run.speeds is not None:
        raise UnsupportedError("devices that are not alike have no trace yet", where="--slow", fix="leave it out")
    groups = JobGroups(ranks=run.devices)
    body = program_body(run, groups, detail)
    return JobTrace(
        name=run.workload.name, groups=groups, classes=tuple(classes_of(body, np.arange(run.devices), groups)),
        step_s=run.timeline.duration,
        metadata={"device": run.device.name, "network": run.options.network, "ranks": run.devices},
    )  # fmt: skip
