"""1F1B: a backward pass as soon as there is one (Narayanan 2019 and 2021, "Efficient Large-Scale Language Model Training
on GPU Clusters Using Megatron-LM", section 2.2), and its interleaved form with virtual stages.

The bubble of 1F1B is GPipe's, `(p - 1) (t_F + t_B)` or a share `(p - 1) / (m + p - 1)`, but stage d (from 0) keeps the
activations of `min(m, p - d)` microbatches only. With v chunks a stage the passes through one are v times shorter and the
pipeline fills v times faster: `(p - 1) (t_F + t_B) / v`, a share `(p - 1) / (v m + p - 1)`, for v times the messages.
"""

from __future__ import annotations

from meshcast.base import UsageError
from meshcast.simulate.pipelines.schedule import Order, PassWork, PipelineSchedule, Task, counts_checked


def one_forward_one_backward(stages: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """Stage d runs p - 1 - d microbatches ahead, then alternates."""
    counts_checked("1f1b", stages, microbatches, chunks)
    forward = [Task(PassWork.FORWARD, m) for m in range(microbatches)]
    backward = [Task(PassWork.BACKWARD, m) for m in range(microbatches)]
    orders = tuple(alternating(forward, backward, stages - 1 - stage) for stage in range(stages))
    return PipelineSchedule(name="1f1b", stages=stages, microbatches=microbatches, orders=orders)


def interleaved(stages: int, microbatches: int, chunks: int = 2) -> PipelineSchedule:
    """Microbatches go through a chunk in groups of p; stage d runs `2 (p - 1 - d) + (v - 1) p` passes ahead.

    Raises:
        UsageError: The microbatches are no multiple of the stages: groups would not be full.
    """
    counts_checked("interleaved", stages, microbatches, chunks, most_chunks=None)
    if chunks == 1:
        raise UsageError(
            "interleaved needs at least 2 virtual stages", where="virtual_stages", fix='or use schedule = "1f1b"'
        )
    if microbatches % stages:
        raise UsageError(
            f"interleaved sends microbatches in groups of {stages}, and {microbatches} is no multiple of that",
            where="microbatches",
            fix=f"use {-(-microbatches // stages) * stages} microbatches, or another schedule",
        )
    passes = [divmod(k, stages) for k in range(microbatches * chunks)]  # (how many groups and chunks before, place)
    forward = [Task(PassWork.FORWARD, n // chunks * stages + m, n % chunks) for n, m in passes]
    backward = [Task(PassWork.BACKWARD, n // chunks * stages + m, chunks - 1 - n % chunks) for n, m in passes]
    ahead = [2 * (stages - 1 - stage) + (chunks - 1) * stages for stage in range(stages)]
    return PipelineSchedule(
        name="interleaved",
        stages=stages,
        microbatches=microbatches,
        chunks=chunks,
        orders=tuple(alternating(forward, backward, lead) for lead in ahead),
    )


def alternating(forward: list[Task], backward: list[Task], ahead: int) -> Order:
    """`ahead` forward passes, then one of each in turn, then the backward passes that are left."""
    lead = min(ahead, len(forward))
    order = forward[:lead]
    for index in range(len(backward)):
        order += forward[lead + index : lead + index + 1]
        order.append(backward[index])
    return tuple(order)
