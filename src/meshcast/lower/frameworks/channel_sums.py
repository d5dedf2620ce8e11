"""Batch norms of images that lie channels first: cuDNN has a block for each channel (`bn_fw_tr` and `bn_bw` of its profiles).

Sums over the pixels of all images, channel by channel, then take as long as a block needs for its channel, which waits for its
loads and goes by the clock: few channels leave most of a device idle. The cycles are those of modules, measured on an H200 over
what the kernels read and write (`programs.pytorch.eager.code_shapes`): the norm's result is written here too, and the pass behind
it stands for the activation's own kernel. Channels last have blocks for pixels, and go at the memory's rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from meshcast.lower.kernel import Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.programs import channel_cycles
from meshcast.workload import CodeShape, Reduction

FEW_PIXELS = 256  # of all images, of a channel
IMAGE_SHARE = 1 / 8  # of what a sum reads: an operand of that much is images, others are a number for each channel


def with_channel_sums(schedule: Schedule) -> Schedule:
    """The schedule, inner blocks too, with sums over pixels that are a block's for each channel."""
    return with_pixel_sums(schedule, _by_channel)


def with_pixel_sums(schedule: Schedule, changed: Callable[[Kernel, Reduction], Kernel]) -> Schedule:
    """The schedule, inner blocks too, with its sums over pixels changed."""

    def step_of(step: Step) -> Step:
        if not isinstance(step, Kernel):
            return with_inner_blocks(step, lambda body: with_pixel_sums(body, changed))
        if step.kind is not KernelKind.REDUCTION or not isinstance(step.geometry, Reduction):
            return step
        return changed(step, step.geometry) if sums_pixels(step.geometry) else step

    return replace(schedule, steps=tuple(map(step_of, schedule.steps)))


def sums_pixels(summed: Reduction) -> bool:
    """Whether pixels are summed up channel by channel: the last of at least three dimensions is kept."""
    pixels = math.prod(summed.shape[place] for place in summed.dims)
    return len(summed.shape) > 2 and not summed.reduces_minor and pixels >= FEW_PIXELS


def _by_channel(kernel: Kernel, summed: Reduction) -> Kernel:
    images = sum(size >= IMAGE_SHARE * kernel.read_bytes for size in kernel.operand_bytes)
    written = max(kernel.operand_bytes, default=0)  # what the norm makes of its images, in the same kernel of cuDNN's
    cycles = channel_cycles(kernel.read_bytes + written, summed.shape[-1], backward=images > 1)
    return replace(kernel, code=CodeShape(block_cycles=cycles))
