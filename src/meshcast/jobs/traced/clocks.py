"""The clock that the power cap leaves the ranks of a trace whose compute is worked out again.

As a program's (`estimate.power`): kernels of a step, and the time in which the device runs none but has work under way:
collectives that nothing hides, pauses behind kernels and waits. What passes between the programs of a pipeline (bubbles,
messages, sums of gradients) is left out, as it is where a pipeline is predicted. There clocks are settled program by program,
here for all programs of a rank together: where one of them meets the cap and the others do not, its kernels come out faster.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from meshcast.chakra import FIRST_JOB_STREAM
from meshcast.estimate import Clocks, EstimatedKernels, settled_clock
from meshcast.hardware import Device
from meshcast.jobs.traced.kernels import kernel_of
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.replay import Replayed
from meshcast.jobs.traced.steps import TraceStep
from meshcast.simulate import covered, merged


def settled_clocks(
    job: TracedRanks, run: Replayed, estimated: EstimatedKernels, device: Device, clocks: Clocks
) -> tuple[float, ...]:
    """The clock of every class of ranks, as a share of the full one.

    Args:
        job: The job.
        run: Its step at the full clock.
        estimated: Its kernels at the full clock.
        device: Whose cap.
        clocks: Whether the clock is that of a long run or of a short one.
    """
    return tuple(_settled(job, number, run, estimated, device, clocks) for number in range(len(job.classes)))


def _settled(
    job: TracedRanks, number: int, run: Replayed, estimated: EstimatedKernels, device: Device, clocks: Clocks
) -> float:
    launches: Counter[TraceStep] = Counter()
    computing, communicating = [], []
    for index, step in enumerate(job.steps[number]):
        when = run.starts[number][index], run.ends[number][index]
        if step.does == "compute":
            computing.append(when)
            if not step.waits:
                launches[step] += step.repeat
        elif step.does == "collective" and step.stream[1] < FIRST_JOB_STREAM:
            communicating.append(when)
    draw = estimated.draw([kernel_of(step) for step in launches])
    if draw is None or not launches:
        return 1.0
    counts = np.array(list(launches.values()), dtype=np.float64)
    busy = merged(computing)
    _, exposed = covered(merged(communicating), busy)
    under_way = sum(end - start for start, end in (*busy, *exposed))
    return settled_clock(draw, counts, device, clocks, max(0.0, under_way - float(counts @ draw.time)))
