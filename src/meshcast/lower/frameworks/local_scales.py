"""Scales of narrow tensors by what a device holds of them, where a program's are by the whole tensor.

A tensor's scale is that of its largest value, and a program for all devices means the largest of all: one number is reduced over
those that share the tensor, for every tensor that is rounded. Transformer Engine and PyTorch's float8 scale what each rank has by
its own largest value. They agree on one only where ranks exchange what is rounded: a sequence-parallel input that is gathered in
fp8 (Transformer Engine's `with_amax_reduction`); float8's inputs of tensor-parallel layers, which are distributed tensors, so
that there only replicas keep to themselves (`replica-scales`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshcast.base import Group
from meshcast.lower.kernel import SCALAR_BYTES, Kernel, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.schedule.step_dependencies import on_values
from meshcast.workload import Tensor, element_bytes


def with_local_scales(schedule: Schedule, tensors: Sequence[Tensor], keep: Callable[[Group], bool]) -> Schedule:
    """The schedule without reductions of numbers that only scale tensors which stay where they are.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        tensors: Types of all values.
        keep: Whether a group agrees on its scales all the same.
    """
    steps = [with_inner_blocks(step, lambda body: with_local_scales(body, tensors, keep)) for step in schedule.steps]
    names: dict[int, int] = {}
    left: list[Step] = []
    for place, step in enumerate(steps):
        if (
            isinstance(step, Kernel)
            and step.collective is not None
            and not keep(step.collective.group)
            and _is_number(step, tensors)
            and _only_scales(step.writes[0], steps[place + 1 :], tensors)
        ):
            names[step.writes[0]] = names.get(step.reads[0], step.reads[0])
            continue
        left.append(on_values(step, names) if names else step)
    if not names and left == list(schedule.steps):
        return schedule
    outputs = tuple(names.get(value, value) for value in schedule.outputs)
    return replace(schedule, steps=tuple(left), outputs=outputs)


def _is_number(kernel: Kernel, tensors: Sequence[Tensor]) -> bool:
    collective = kernel.collective
    assert collective is not None
    return collective.kind == "all_reduce" and len(kernel.reads) == len(kernel.writes) == 1 and _small(kernel, tensors)


def _small(kernel: Kernel, tensors: Sequence[Tensor]) -> bool:
    return all(tensors[value].bytes <= SCALAR_BYTES for value in (*kernel.reads, *kernel.writes))


def _only_scales(number: int, behind: Sequence[Step], tensors: Sequence[Tensor]) -> bool:
    """Whether what follows of a number are tensors of a byte a value or less, none of which is sent anywhere."""
    scales: set[int] = {number}
    rounded: set[int] = set()
    for step in behind:
        used = scales.intersection(step.reads)
        if not isinstance(step, Kernel):
            if rounded.intersection(step.reads):
                return False
            continue
        if step.collective is not None:
            if used or rounded.intersection(step.reads):
                return False
            continue
        if not used:
            continue
        if _small(step, tensors):
            scales.update(step.writes)
        rounded.update(value for value in step.writes if _is_narrow(tensors[value]))
    return bool(rounded)


def _is_narrow(tensor: Tensor) -> bool:
    return tensor.bytes > SCALAR_BYTES and element_bytes(tensor.dtype) <= 1 and tensor.dtype.startswith("f")
