"""Zero-bubble schedules: the backward pass split in two, so that weight gradients fill what would be idle.

After Qi, Wan, Huang and Lin, "Zero Bubble Pipeline Parallelism" (2024). B is the gradient of a stage's input, which the
stage before waits for, and W that of its weights, which nobody waits for. With p equal stages the idle time of the worst
stage between its first and its last task is

    1F1B    (p - 1) (t_F + t_B + t_W)
    ZB-H1   (p - 1) (t_F + t_B - t_W)        activations of as many microbatches as 1F1B
    ZB-H2   (p - 1) (t_F + t_B - 2 t_W)      of up to 2 p - 1; none at all where t_F = t_B = t_W

Stages begin and end at different times, so these hold for steps that follow each other without a barrier: the stage that
begins last also ends last.
"""

from __future__ import annotations

from meshcast.simulate.pipelines.schedule import Order, PassWork, PipelineSchedule, Task, counts_checked


def zero_bubble_h1(stages: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """1F1B's order of F and B; stage d holds back the weight gradients of d microbatches until the end."""
    counts_checked("zb-h1", stages, microbatches, chunks)
    orders = tuple(
        _filled(microbatches, ahead=stages - 1 - stage, behind=min(stage, microbatches)) for stage in range(stages)
    )
    return PipelineSchedule(
        name="zb-h1", stages=stages, microbatches=microbatches, orders=orders, split=True, barrier=False
    )


def zero_bubble_h2(stages: int, microbatches: int, chunks: int = 1) -> PipelineSchedule:
    """Stage d runs `2 (p - 1 - d)` microbatches ahead and holds back the weight gradients of 2 d."""
    counts_checked("zb-h2", stages, microbatches, chunks)
    orders = tuple(
        _filled(microbatches, ahead=2 * (stages - 1 - stage), behind=min(2 * stage, microbatches))
        for stage in range(stages)
    )
    return PipelineSchedule(
        name="zb-h2", stages=stages, microbatches=microbatches, orders=orders, split=True, barrier=False
    )


def _filled(microbatches: int, *, ahead: int, behind: int) -> Order:
    """`ahead` forward passes, then F, B and the W of `behind` microbatches before in turn; what is left at the end."""
    lead = min(ahead, microbatches)
    order = [Task(PassWork.FORWARD, m) for m in range(lead)]
    for m in range(microbatches):
        if lead + m < microbatches:
            order.append(Task(PassWork.FORWARD, lead + m))
        order.append(Task(PassWork.BACKWARD, m))
        if m >= behind:
            order.append(Task(PassWork.WEIGHT, m - behind))
    order += [Task(PassWork.WEIGHT, m) for m in range(microbatches - behind, microbatches)]
    return tuple(order)
