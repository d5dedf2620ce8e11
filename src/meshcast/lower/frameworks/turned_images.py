"""Images that lie channels first, as PyTorch's do unless a program asks for channels last: cuDNN turns them for tensor cores.

Kernels for tensor cores read a pixel's channels together. Of images stored channels first cuDNN makes copies with channels last,
and turns the result back (NVIDIA, Convolutional Layers User's Guide, "Tensor Layouts in Memory": transposes are added
automatically, at a cost). Windows of one pixel are products and take their operands either way: in profiles of PyTorch on an H200
only larger windows, and strided ones, have `nchwToNhwc` around them, images of few channels or few pixels aside, which have
kernels of their own (`programs.pytorch.eager.libraries` has the same rule for modules). Filters are small beside images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from meshcast.lower.convolutions.cudnn_convolutions import is_filter_gradient_call
from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import Kernel, KernelKind, Schedule, Step
from meshcast.lower.schedule.inner_blocks import with_inner_blocks
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import Convolution

FEW_PIXELS = 256  # of a result
FEW_CHANNELS = 32  # of either image


def with_turned_images(schedule: Schedule, values: ValueTypes) -> Schedule:
    """The schedule with copies of images before convolutions that want them turned, and of their results behind them.

    Args:
        schedule: The schedule of a block; its inner blocks are looked through too.
        values: The values of the whole program, which the copies are added to.
    """
    return replace(schedule, steps=tuple(made for step in schedule.steps for made in _turned(step, values)))


def _turned(step: Step, values: ValueTypes) -> Iterator[Step]:
    if not isinstance(step, Kernel):
        yield with_inner_blocks(step, lambda body: with_turned_images(body, values))
    elif step.kind is KernelKind.CONVOLUTION and isinstance(step.geometry, Convolution) and _wants(step.geometry):
        yield from _around(step, step.geometry, values)
    else:
        yield step


def _wants(shape: Convolution) -> bool:
    """Whether cuDNN turns the images of a convolution: windows of several pixels, of many channels and pixels."""
    gradient = is_filter_gradient_call(shape)
    window = shape.out_spatial if gradient else shape.kernel
    pixels = shape.kernel if gradient else shape.out_spatial
    channels = min(
        shape.batch if gradient else shape.in_channels, shape.out_channels
    )  # its gradient has them exchanged
    steps = (*shape.strides, *shape.lhs_dilation, *shape.rhs_dilation)
    depthwise = max(shape.feature_groups, shape.batch_groups) > 1
    several = math.prod(window) > 1 or max(steps, default=1) > 1
    return several and not depthwise and math.prod(pixels) >= FEW_PIXELS and channels >= FEW_CHANNELS


def _around(call: Kernel, shape: Convolution, values: ValueTypes) -> Iterator[Kernel]:
    """A call between the copies: both operands of a filter's gradient are images, else the first and the result are."""
    gradient = is_filter_gradient_call(shape)
    images = call.reads[: 2 if gradient else 1]
    names: dict[int, int] = {}
    for value in dict.fromkeys(images):
        names[value] = _like(value, values)
        yield _turning(value, names[value], call, values)
    writes = call.writes if gradient else (_like(call.writes[0], values), *call.writes[1:])
    yield replace(call, reads=tuple(names.get(value, value) for value in call.reads), writes=writes)
    if not gradient:
        yield _turning(writes[0], call.writes[0], call, values)


def _like(value: int, values: ValueTypes) -> int:
    kind = values.tensors[value]
    return values.new(kind.shape, kind.dtype)


def _turning(source: int, target: int, call: Kernel, values: ValueTypes) -> Kernel:
    copy = copy_kernel(source, target, values.tensors[source], call.location)
    return replace(copy, name="image:transpose", kind=KernelKind.TRANSPOSE, flags=frozenset({"transpose", "turned"}))
