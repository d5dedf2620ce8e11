"""The trace of a program whose ranks all run the same."""

from __future__ import annotations

import numpy as np

from meshcast.jobs.nodes.drawable import check_drawable
from meshcast.jobs.nodes.flattening import Detail, program_body
from meshcast.jobs.nodes.job import JobTrace, classes_of, facts_of
from meshcast.jobs.nodes.job_groups import JobGroups
from meshcast.jobs.nodes.starting import with_longer_starts
from meshcast.jobs.program.run import Run


def program_trace(run: Run, detail: Detail) -> JobTrace:
    """The trace of a program: one class of ranks, as all of them run the same.

    Raises:
        InfeasibleError: It does not fit into the devices' memory, so there is no step.
        UnsupportedError: Its devices are not all alike.
    """
    check_drawable(run)
    groups = JobGroups(ranks=run.devices)
    classes = classes_of(program_body(run, groups, detail), np.arange(run.devices), groups)
    return JobTrace(
        name=run.workload.name, groups=groups, classes=with_longer_starts(classes, run.device),
        step_s=run.timeline.duration, makespan_s=run.timeline.duration,
        metadata=facts_of(run, run.devices),
    )  # fmt: skip
