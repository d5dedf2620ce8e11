"""GPipe: all forward passes, then all backward passes (Huang 2019, "GPipe: Efficient Training of Giant Neural Networks").

With p equal stages and m microbatches a stage is idle for `(p - 1) (t_F + t_B)`, a share `(p - 1) / (m + p - 1)` of the
step, and every stage keeps the activations of all m microbatches.
"""

from __future__ import annotations

from meshcast.simulate.pipelines.schedule import PassWork, PipelineSchedule, Task, counts_checked


def gpipe(stages: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """Forward 0..m-1, backward m-1..0: the last activations to be made are the first to be used up."""
    counts_checked("gpipe", stages, microbatches, chunks)
    forward = tuple(Task(PassWork.FORWARD, m) for m in range(microbatches))
    backward = tuple(Task(PassWork.BACKWARD, m) for m in reversed(range(microbatches)))
    return PipelineSchedule(
        name="gpipe", stages=stages, microbatches=microbatches, orders=(forward + backward,) * stages
    )
