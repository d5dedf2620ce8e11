"""Batch norms of images by a library's kernels: as many sums as the norm needs, and no more arithmetic.

A compiler differentiates a norm's formula and evaluates what comes of it at every pixel, thirty ops and more in its passes of
sums (measured with XLA on an H200: they are bound by their instructions). A library's kernels add up what the norm's own
derivative needs: forward the mean and the squares (two sums), backward `sum(dy)` and `sum(dy (x - mean))`:

    dx = (gamma / sigma) (dy - mean(dy) - xhat mean(dy xhat))          (Ioffe 2015, section 3)

Backward a pixel costs a subtraction, a product and two additions for the two values that are read: two operations for each.
Forward it is three for one value, which count as two here too. With channels last a thread has a few channels:
`batch_norm_collect_statistics_channels_last_kernel` and `batch_norm_backward_reduce_channels_last_kernel` of PyTorch
(aten/src/ATen/native/cuda/Normalization.cuh), cuDNN's NHWC kernels in MXNet and TensorFlow. They go at the memory's rate.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.lower.frameworks.channel_sums import IMAGE_SHARE, with_pixel_sums
from meshcast.lower.kernel import Kernel, Schedule
from meshcast.workload import Reduction

WORK = 2.0  # floating-point operations at a pixel for each tensor that is read: x - mean, dy times it and two sums, of x and dy


def with_library_norms(schedule: Schedule) -> Schedule:
    """The schedule, inner blocks too, with a library's arithmetic in sums over pixels."""
    return with_pixel_sums(schedule, _plain)


def _plain(kernel: Kernel, summed: Reduction) -> Kernel:
    """The sums alone: two operations for each pixel of every tensor of images that is read."""
    images = max(1, sum(size >= IMAGE_SHARE * kernel.read_bytes for size in kernel.operand_bytes))
    work = WORK * images * math.prod(summed.shape)
    return replace(kernel, vector_flops=min(kernel.vector_flops, work), transcendentals=0.0)
