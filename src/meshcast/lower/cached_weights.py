"""Weights that are made ready for their products once a step, where our programs do so for every microbatch.

Our training steps round weights to fp8 where a product takes them, in every pass of every microbatch: the largest value, the
scale, both orders. Transformer Engine does so in the first microbatch and keeps the result for the others
(`is_first_microbatch`; with `fp8_param_gather` the optimizer writes them so). Here what is made of weights alone goes from
passes of a microbatch: it is there. What the one time takes, one in as many as there are microbatches, is left out; the memory
is that of the weights in 16 bits, which two orders of 8 bits stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, BranchStep, Kernel, KernelKind, LoopStep, Schedule, Step
from meshcast.workload import Tensor

_MAKING = frozenset({KernelKind.LOOP_FUSION, KernelKind.REDUCTION, KernelKind.TRANSPOSE})


def with_cached_weights(schedule: Schedule, tensors: Sequence[Tensor], weights: set[int], *, is_pass: bool) -> Schedule:
    """The schedule without what microbatches after the first find made.

    Args:
        schedule: The schedule of a block.
        tensors: Types of all values.
        weights: Those of the block's inputs that are weights.
        is_pass: Whether the block runs for every microbatch; where it does not, loops that have loops inside do.
    """
    held = set(weights)
    steps: list[Step] = []
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            inside = {value.before for value in step.carried if value.initial in held and value.unchanged}
            of_microbatches = any(isinstance(inner, LoopStep) for inner in step.body.steps)
            body = with_cached_weights(
                step.body, tensors, inside | held.intersection(step.reads), is_pass=is_pass or of_microbatches
            )
            steps.append(replace(step, body=body))
        elif isinstance(step, BranchStep) or not _of_weights_alone(step, held, tensors):
            steps.append(step)
        else:
            held.update(step.writes)
            # What collectives send is a share that is sent for every microbatch, and has to be made for it.
            if not is_pass or _is_sent(step, schedule.steps):
                steps.append(step)
    return replace(schedule, steps=tuple(steps))


def _of_weights_alone(kernel: Kernel, weights: set[int], tensors: Sequence[Tensor]) -> bool:
    large = [value for value in kernel.reads if tensors[value].bytes > SCALAR_BYTES]
    return bool(large) and kernel.kind in _MAKING and not kernel.updates and weights.issuperset(large)


def _is_sent(kernel: Kernel, steps: Sequence[Step]) -> bool:
    return any(
        isinstance(step, Kernel) and step.collective is not None and not set(kernel.writes).isdisjoint(step.reads)
        for step in steps
    )
