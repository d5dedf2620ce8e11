"""The trace of a program whose ranks all run the same."""

from __future__ import annotations

import numpy as np

from meshcast.chakra.own_attributes import DEVICE_KIND
from meshcast.export.flattening import Detail, program_body
from meshcast.export.job import JobTrace, classes_of
from meshcast.export.job_groups import JobGroups
from meshcast.export.program_slices import check_drawable
from meshcast.run import Run


def program_trace(run: Run, detail: Detail) -> JobTrace:
    """What every rank of a program does.

    Raises:
        InfeasibleError: It does not fit into the devices' memory, so there is no step.
        UnsupportedError: Its devices are not all alike.
    """
    check_drawable(run)
    groups = JobGroups(ranks=run.devices)
    body = program_body(run, groups, detail)
    return JobTrace(
        name=run.workload.name, groups=groups, classes=tuple(classes_of(body, np.arange(run.devices), groups)),
        step_s=run.timeline.duration,
        metadata={"device": run.device.name, DEVICE_KIND: run.device.kind, "network": run.options.network, "ranks": run.devices},
    )  # fmt: skip
