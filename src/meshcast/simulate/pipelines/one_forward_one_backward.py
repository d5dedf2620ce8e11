"""1F1B: a backward pass as soon as there is one (Narayanan 2019 and 2021, "Efficient Large-Scale Language Model Training
on GPU Clusters Using Megatron-LM", section 2.2), and its interleaved form with virtual stages.

The bubble of 1F1B is GPipe's, `(p - 1) (t_F + t_B)` or a share `(p - 1) / (m + p - 1)`, but stage d (from 0) keeps the
activations of `min(m, p - d)` microbatches only. With v chunks a stage the passes through one are v times shorter and the
pipeline fills v times faster: `(p - 1) (t_F + t_B) / v`, a share `(p - 1) / (v m + p - 1)`, for v times the messages.

Microbatches go through a chunk in groups, of p where p divides m. Otherwise there are as many equal groups as are not smaller
than p, each of `g = m / max(1, floor(m / p))` (PyTorch's `ScheduleInterleaved1F1B`; Megatron Core's
`microbatch_group_size_per_vp_stage`): the bubble stays, and more microbatches are kept. Fewer than p are one group, of which the
first has to come round before it can go on: it waits p - m passes in each chunk, and the bubble is
`(v (p - m) + m - 1) (t_F + t_B) / v`.
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
    """Microbatches go through a chunk in groups of g; stage d runs `2 (p - 1 - d) + (v - 1) g` passes ahead.

    Raises:
        UsageError: The microbatches do not make equal groups.
    """
    counts_checked("interleaved", stages, microbatches, chunks, most_chunks=None)
    if chunks == 1:
        raise UsageError(
            "interleaved needs at least 2 virtual stages", where="virtual_stages", fix='or use schedule = "1f1b"'
        )
    group = interleaved_group(stages, microbatches)
    if group is None:
        near = " or ".join(map(str, near_groups(stages, microbatches)))
        raise UsageError(
            f"interleaved sends microbatches in equal groups of {stages} or more, and {microbatches} do not make "
            f"{microbatches // stages} of them",
            where="microbatches",
            fix=f"use {near} microbatches, or another schedule",
        )
    passes = [divmod(k, group) for k in range(microbatches * chunks)]  # (how many groups and chunks before, place)
    forward = [Task(PassWork.FORWARD, n // chunks * group + m, n % chunks) for n, m in passes]
    backward = [Task(PassWork.BACKWARD, n // chunks * group + m, chunks - 1 - n % chunks) for n, m in passes]
    ahead = [2 * (stages - 1 - stage) + (chunks - 1) * group for stage in range(stages)]
    return PipelineSchedule(
        name="interleaved",
        stages=stages,
        microbatches=microbatches,
        chunks=chunks,
        orders=tuple(alternating(forward, backward, lead) for lead in ahead),
    )


def interleaved_group(stages: int, microbatches: int) -> int | None:
    """How many microbatches go through a chunk of interleaved stages one after the other; None where no number divides them.

    In as many rounds as there are whole groups of the stages, one at least.
    """
    rounds = max(1, microbatches // stages)
    return None if microbatches % rounds else microbatches // rounds


def near_groups(stages: int, microbatches: int) -> tuple[int, int]:
    """The nearest numbers of microbatches below and above that make equal groups."""
    below, above = microbatches - 1, microbatches + 1
    while interleaved_group(stages, below) is None:
        below -= 1
    while interleaved_group(stages, above) is None:
        above += 1
    return below, above


def alternating(forward: list[Task], backward: list[Task], ahead: int) -> Order:
    """`ahead` forward passes, then one of each in turn, then the backward passes that are left."""
    lead = min(ahead, len(forward))
    order = forward[:lead]
    for index in range(len(backward)):
        order += forward[lead + index : lead + index + 1]
        order.append(backward[index])
    return tuple(order)
