"""Which buffers are there when a program holds most: the temporaries behind `MemoryUse.temporaries`, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshcast.hardware import Device
from meshcast.lower import BranchStep, Kernel, LoopStep, LoweredProgram, Schedule
from meshcast.simulate.memory.buffers import live_bytes, moments
from meshcast.simulate.memory.liveness import between_buffers, temporary_buffers
from meshcast.workload import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakBuffer:
    """A buffer that is there at the peak.

    Attributes:
        size: Its bytes.
        tensor: The type of the value that it was made for; None of what a kernel needs while it runs.
        writer: The kernel that makes this value; None where a loop or a branch does.
    """

    size: int
    tensor: Tensor | None
    writer: Kernel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment at which temporaries take most.

    Attributes:
        kernel: What runs then; None between kernels.
        buffers: What is there, the largest first.
        between: Bytes besides, where a compiler has assigned one block to all temporaries (`between_buffers`): with them
            the sizes add up to the temporaries.
    """

    kernel: Kernel | None
    buffers: tuple[PeakBuffer, ...]
    between: int = 0


def peak_buffers(lowered: LoweredProgram, device: Device) -> Peak:
    """The buffers at the peak, by the live ranges of what the schedule's kernels write, whoever has made the schedule."""
    schedule, tensors = lowered.schedule, lowered.tensors
    buffers = temporary_buffers(lowered, device)
    between = between_buffers(lowered, device)
    order, live = live_bytes(buffers)
    if not order:
        return Peak(kernel=None, buffers=(), between=between)
    moment = order[max(range(len(order)), key=lambda place: live[place])]
    writers = dict(_writers(schedule))
    there = sorted((each for each in buffers if each.start <= moment <= each.end), key=lambda each: -each.size)
    return Peak(
        kernel=next((kernel for at, kernel in moments(schedule) if at == moment), None),
        buffers=tuple(
            PeakBuffer(
                size=each.size,
                tensor=None if each.value is None else tensors[each.value],
                writer=None if each.value is None else writers.get(each.value),
            )
            for each in there
        ),
        between=between,
    )


def _writers(schedule: Schedule) -> Iterator[tuple[int, Kernel]]:
    """Every value that a kernel writes, with the kernel."""
    blocks = [schedule]
    while blocks:
        for step in blocks.pop().steps:
            if isinstance(step, Kernel):
                yield from ((value, step) for value in step.writes)
            elif isinstance(step, LoopStep):
                blocks.append(step.body)
            elif isinstance(step, BranchStep):
                blocks.extend(step.bodies)
