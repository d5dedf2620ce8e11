"""Operands that ATen copies before a kernel which wants its elements one after the other; free of torch.

Kernels over rows, windows and tables are called with `contiguous()` of what they are given (`layer_norm_kernel.cu`:
`expect_contiguous`; `SoftMax.cu`, `group_norm.cpp`, `Embedding.cu`, `ScanKernels.cpp`), so that permuted images before a norm
(the stem of ConvNeXt, SqueezeBERT's layers) cost a copy each that no operator of PyTorch's shows. Images of one dimension are
copied too before they become images of two (`Convolution.cpp`: "avoid accidentally going through NHWC for permuted 3d input").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshcast.programs.pytorch.eager.code_shapes import PLACES_START, against_order, indexed
from meshcast.programs.pytorch.launches.launch import Launch, pointwise
from meshcast.programs.pytorch.recording.calls import AtenOp, View, storage_of_a_call

# The operands that are wanted so, the first ones in order.
_WANTED = {
    "native_layer_norm": 1,
    "_fused_rms_norm": 1,
    "native_group_norm": 1,
    "native_layer_norm_backward": 2,
    "_fused_rms_norm_backward": 2,
    "native_group_norm_backward": 2,
    "_softmax": 1,
    "_log_softmax": 1,
    "_softmax_backward_data": 2,
    "_log_softmax_backward_data": 2,
    "embedding_dense_backward": 1,
    "cumsum": 1,
    "cumprod": 1,
    "sort": 1,
    "topk": 1,
}
_LINE = 3  # dimensions of images of one dimension


def dense_view(view: View, shape: tuple[int, ...] | None = None) -> View:
    """A tensor of its own that a view is copied to, in its shape or in another, its elements one after the other."""
    shape = view.shape if shape is None else shape
    strides = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    return View(storage_of_a_call("copy", view, shape), shape, strides, view.dtype)


def copied_to(view: View, dense: View, name: str = "contiguous_copy") -> Launch:
    """The copy of a view into a tensor of its own."""
    made = pointwise(name, (view,), (dense,), ())
    if made.turned:
        return replace(made, turned=False, extra=PLACES_START + against_order((view,), (dense,)))
    return replace(made, share=indexed((view,), (dense,)), extra=PLACES_START)


def wanted_dense(op: AtenOp) -> Sequence[int]:
    """The places of operands that a call wants contiguous."""
    if op.name in ("convolution", "convolution_backward"):
        images = (0,) if op.name == "convolution" else (0, 1)
        return images if len(op.takes[0].shape) == _LINE else ()
    return range(min(_WANTED.get(op.name, 0), len(op.takes)))


def with_dense_operands(op: AtenOp) -> tuple[AtenOp, Iterator[Launch]]:
    """A call with its operands as its kernels take them, and the copies that make them so."""
    apart = [i for i in wanted_dense(op) if op.takes[i].elements > 1 and not op.takes[i].contiguous]
    if not apart:
        return op, iter(())
    takes = list(op.takes)
    for i in apart:
        takes[i] = dense_view(op.takes[i])
    return replace(op, takes=tuple(takes)), (copied_to(op.takes[i], takes[i]) for i in apart)
