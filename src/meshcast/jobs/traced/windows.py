"""From when to when a step of each rank counts: from the start of the job where all ranks begin a step at once, else from its
own first work.

Pipelines without a barrier between steps have ranks that begin, and end, at different times; each goes on with the next step
when it is done with this one. What then passes from one step to the next is the longest that a rank needs,

    step = max over ranks of (end of its last node - start of its first one that works)

which is less than the time from the first start of all to the last end (Qi 2024, section 4; `simulate.pipelines`).
"""

from __future__ import annotations

from meshcast.chakra import STEPS_OVERLAP
from meshcast.jobs.traced.ranks import TracedRanks
from meshcast.jobs.traced.replay import Replayed
from meshcast.simulate import Interval

AT_WORK = ("compute", "collective", "send")


def step_windows(job: TracedRanks, run: Replayed) -> list[Interval]:
    """The step of every class, from its start to its end."""
    overlap = bool(job.metadata.get(STEPS_OVERLAP, False))
    found = []
    for steps, starts, ends in zip(job.steps, run.starts, run.ends, strict=True):
        working = [start for step, start in zip(steps, starts, strict=True) if step.does in AT_WORK]
        found.append((min(working, default=0.0) if overlap else 0.0, max(ends, default=0.0)))
    return found
