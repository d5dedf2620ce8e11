"""Eager kernels that sum: reductions, norms, softmaxes, losses (`ATen/native/cuda`); free of torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from meshcast.programs.pytorch.eager.code_shapes import (
    CAST_START,
    CHANNEL_START,
    COLUMNS,
    MOMENTS_BLOCK,
    NORMALISED,
    PLACES_START,
    REGULAR_ROWS,
    ROW_BACK,
    ROWS_BACK_START,
    ROWS_START,
    STREAM,
    SUM_PLACE,
    SUMMED_COLUMNS,
    TRANSFORMED,
    TWICE_READ,
    UNROLLED,
    WARP_ELEMENT,
    WARP_ROW,
    by_channel,
    bytes_of,
    down_seconds,
    indexed,
    row_seconds,
    wave_cycles,
)
from meshcast.programs.pytorch.eager.reduce_shapes import ROUND, SharedSum, shared_sum
from meshcast.programs.pytorch.launches.launch import Arithmetic, Launch, pointwise
from meshcast.programs.pytorch.recording.calls import AtenOp, View, storage_of_a_call

_WARP = 1024  # elements of a row up to which a warp does it (`PersistentSoftmax.cuh`)


# Ops that sum, or otherwise reduce, along the dimensions that `reduced_dims` gives.
SUMS = (
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "var", "var_mean", "std",
    "norm", "linalg_vector_norm", "logsumexp", "count_nonzero",
)  # fmt: skip


def reduced_dims(op: AtenOp, view: View) -> tuple[int, ...]:
    """Dimensions that a reduction sums over."""
    told = op.told.get("dim")
    rank = len(view.shape)
    if told is None or told == ():
        return tuple(range(rank))
    dims = told if isinstance(told, tuple) else (told,)
    return tuple(sorted({int(d) % rank for d in dims})) if rank else ()


def along_rows(view: View, dims: tuple[int, ...]) -> bool:
    """Whether a reduction goes along the dimension whose neighbours lie side by side, or over everything."""
    order = view.dense_order
    inner = order[-1] if order else len(view.shape) - 1
    return inner in dims or not dims


def _reduction(op: AtenOp) -> Iterator[Launch]:
    view = op.takes[0]
    yield from summing(op.name, view, reduced_dims(op, view), op.gives, ("multiply",) if "norm" in op.name else ())


def summing(
    name: str, view: View, dims: tuple[int, ...], gives: tuple[View, ...], ops: tuple[str, ...] = ()
) -> Iterator[Launch]:
    """A kernel of sums, and before it the zeros from which its parts are counted, where it has any."""
    made = summed(name, view, dims, gives, ops)
    if _way(view, dims, gives).part_rounds:
        yield pointwise("memset", (), gives[:1], ())
    yield made


def _way(view: View, dims: tuple[int, ...], gives: tuple[View, ...]) -> SharedSum:
    outputs = max(1, gives[0].elements)
    return shared_sum(outputs, max(1, view.elements // outputs), rows=along_rows(view, dims))


def summed(name: str, view: View, dims: tuple[int, ...], gives: tuple[View, ...], ops: tuple[str, ...] = ()) -> Launch:
    """A kernel of sums, along rows or down columns, which threads and blocks share as `reduce_shapes` has it."""
    rows = along_rows(view, dims)
    way = _way(view, dims, gives)
    each = view.elements * SUM_PLACE if rows and _apart(view, dims) else 0.0
    return Launch(
        name=name,
        form="reduce",
        takes=(view,),
        gives=gives,
        stages=(Arithmetic(ops=ops, shape=view.shape, reduced=dims),),
        share=REGULAR_ROWS if rows else SUMMED_COLUMNS,
        extra=max(0.0, each - view.bytes / (REGULAR_ROWS * STREAM)),
        block_cycles=way.rounds * ROUND,
        wait_cycles=way.waits + (wave_cycles(way.blocks) if rows else 0.0),
    )


def _apart(view: View, dims: tuple[int, ...]) -> bool:
    """Whether what is summed lies in several pieces, so that each element's place is worked out: a channel of many images."""
    order = view.dense_order or tuple(range(len(view.shape)))
    summed = [d in dims for d in order if view.shape[d] > 1]
    return sum(now and not before for before, now in itertools.pairwise([False, *summed])) > 1


def _rows(
    ops: tuple[str, ...], *, reductions: int = 1, softmax: bool = False, share: float = REGULAR_ROWS
) -> Callable[[AtenOp], Iterator[Launch]]:
    """A kernel that goes over rows more than once while they are on the chip: softmaxes, norms."""

    def launches(op: AtenOp) -> Iterator[Launch]:
        view = max(op.takes, key=lambda each: each.elements)
        dim = op.told.get("dim", -1)
        dims = (int(dim) % max(1, len(view.shape)),) if softmax and view.shape else normalised(op, view)
        length = 1
        for d in dims:
            length *= view.shape[d]
        rows = view.elements // max(1, length)
        stages = [Arithmetic(ops=("multiply",), shape=view.shape, reduced=dims) for _ in range(reductions)]
        warps = softmax and length <= _WARP
        extra = 0.0 if softmax else row_seconds(rows, length, view.dtype)
        if warps and "backward" not in op.name:  # whose warps keep up with memory
            extra = rows * (WARP_ROW + length * WARP_ELEMENT)
        yield Launch(
            name=op.name,
            form="reduce",
            takes=tuple(each for each in op.takes if each.shape),
            gives=op.gives,
            stages=(*stages, Arithmetic(ops=ops, shape=view.shape)),
            share=1.0 if warps else share,
            extra=extra,
        )

    return launches


def normalised(op: AtenOp, view: View) -> tuple[int, ...]:
    """Dimensions of a layer norm."""
    shape = op.told.get("normalized_shape")
    count = len(shape) if isinstance(shape, tuple) else 1
    return tuple(range(max(0, len(view.shape) - count), len(view.shape)))


def _layer_norm_backward(op: AtenOp) -> Iterator[Launch]:
    """Two kernels: the input's gradient row by row, and those of weight and bias down the columns (`layer_norm_kernel.cu`)."""
    view = max(op.takes, key=lambda each: each.elements)
    dims = normalised(op, view)
    outer = tuple(d for d in range(len(view.shape)) if d not in dims)
    stages = (
        Arithmetic(ops=("multiply",), shape=view.shape, reduced=dims),
        Arithmetic(ops=("multiply", "add", "subtract", "multiply"), shape=view.shape),
    )
    rows = view.elements // max(1, view.shape[-1])
    yield Launch(
        name="layer_norm_grad_input",
        form="reduce",
        takes=op.takes,
        gives=op.gives[:1],
        stages=stages,
        share=0.95,
        extra=ROWS_BACK_START + rows * ROW_BACK,
    )
    if len(op.gives) > 1:
        wide = tuple(each for each in op.takes if each.elements == view.elements)
        made = summed("GammaBetaBackward", view, outer, op.gives[1:], ("subtract", "multiply", "multiply"))
        yield Launch(
            name=made.name,
            form="reduce",
            takes=wide,
            gives=made.gives,
            stages=made.stages,
            extra=down_seconds(rows, view.shape[-1], bytes_of(wide)),
        )


def _group_norm(op: AtenOp) -> Iterator[Launch]:
    view = op.takes[0]
    made = summed("RowwiseMoments", view, tuple(range(1, len(view.shape))), op.gives[1:] or op.gives)
    groups = max(1, op.gives[1].elements) if len(op.gives) > 1 else view.shape[0]
    waits = max(0.0, view.bytes / groups / MOMENTS_BLOCK - view.bytes / STREAM)
    yield replace(made, extra=ROWS_START + waits, block_cycles=0.0, wait_cycles=0.0)
    yield _placed(pointwise(op.name, op.takes, op.gives[:1], ("subtract", "multiply", "add")))


def _group_norm_backward(op: AtenOp) -> Iterator[Launch]:
    """Sums over each channel of each image, the images' gradient, and those of weight and bias (`group_norm_kernel.cu`)."""
    gradient, view = op.takes[:2]
    rank, channels = len(view.shape), math.prod(view.shape[:2])
    sums = View(storage_of_a_call("sums", view, (channels,)), (channels,), (1,), "float32")
    made = summed("ComputeInternalGradients", view, tuple(range(2, rank)), (sums,), ("multiply",))
    yield replace(made, takes=(gradient, view))
    yield _placed(pointwise(op.name, (gradient, view), op.gives[:1], ("multiply", "add", "multiply", "add")))
    if len(op.gives) > 1:
        yield pointwise("GammaBetaBackward", (sums,), op.gives[1:], ("add",))


def channels_last(view: View) -> bool:
    """Whether images lie pixel by pixel."""
    return view.dense_order is not None and len(view.shape) > 2 and view.dense_order[-1:] == (1,)


def _batch_norm(op: AtenOp) -> Iterator[Launch]:
    """`_batch_norm_impl_index`: cuDNN's one kernel, or ATen's: statistics, running ones, then the transformation."""
    view = op.takes[0]
    last, half = channels_last(view), view.dtype != "float32"
    dims = tuple(d for d in range(len(view.shape)) if d != 1)
    training = op.told.get("training", True) and "no_training" not in op.name
    if training and _normalised_by_cudnn(view):
        share, extra = by_channel(view, "cudnn")
        extra += CHANNEL_START
        yield Launch(
            name="bn_fw_tr",
            form="reduce",
            takes=op.takes,
            gives=op.gives,
            stages=(
                Arithmetic(ops=("subtract", "multiply"), shape=view.shape, reduced=dims),
                Arithmetic(ops=("subtract", "multiply", "multiply", "add"), shape=view.shape),
            ),
            share=share,
            extra=extra,
        )
        return
    if training:
        statistics = op.gives[1:] or op.gives[:1]
        share, extra = (COLUMNS, 0.0) if last else by_channel(view, "statistics")
        yield Launch(
            name="batch_norm_collect_statistics",
            form="reduce",
            takes=(view,),
            gives=statistics,
            stages=(Arithmetic(ops=("subtract", "multiply"), shape=view.shape, reduced=dims),),
            share=share,
            extra=extra + CHANNEL_START,
        )
        if half:
            yield pointwise("batch_norm_update_stats", statistics[:1], statistics[:1], ("multiply", "add"))
    yield Launch(
        name="batch_norm_transform_input",
        form="pointwise",
        takes=op.takes,
        gives=op.gives[:1],
        stages=(Arithmetic(ops=("subtract", "multiply", "multiply", "add")),),
        share=1.0 if last else TRANSFORMED if half else NORMALISED,
        extra=PLACES_START,
    )


def _normalised_by_cudnn(view: View) -> bool:
    """Whether cuDNN normalises in training: images that lie channel by channel, in any dtype but bf16 (`Normalization.cpp`)."""
    return view.dtype != "bfloat16" and len(view.shape) > 2 and not channels_last(view)


def _batch_norm_backward(op: AtenOp) -> Iterator[Launch]:
    view = op.takes[0]
    dims = tuple(d for d in range(len(view.shape)) if d != 1)
    if channels_last(view):
        share, extra = COLUMNS / 2, 0.0
    else:
        share, extra = by_channel(view, "cudnn backward" if _normalised_by_cudnn(view) else "backward")
    yield Launch(
        name="batch_norm_backward",
        form="reduce",
        takes=op.takes,
        gives=op.gives,
        stages=(
            Arithmetic(ops=("subtract", "multiply"), shape=view.shape, reduced=dims),
            Arithmetic(ops=("multiply", "subtract", "multiply"), shape=view.shape),
        ),
        share=share,
        extra=extra + CHANNEL_START,
    )


def _loss(op: AtenOp) -> Iterator[Launch]:
    view = op.takes[0]
    rows = View(view.storage, view.shape[:1], (1,), view.dtype)
    yield Launch(
        name=op.name,
        form="reduce",
        takes=(rows,),
        gives=op.gives[:1],
        stages=(Arithmetic(shape=rows.shape, reduced=(0,)),),
        extra=2e-9 * rows.elements,
    )


def _loss_backward(op: AtenOp) -> Iterator[Launch]:
    """Zeros, and one number a row."""
    yield pointwise("fill", (), op.gives, ())
    rows = View(op.gives[0].storage, op.gives[0].shape[:1], (1,), op.gives[0].dtype)
    yield pointwise(op.name, op.takes[:1], (rows,), ("multiply",))


def _scan(op: AtenOp) -> Iterator[Launch]:
    yield _placed(pointwise(op.name, op.takes[:1], op.gives, ("add", "add")))


def _safe_softmax(op: AtenOp) -> Iterator[Launch]:
    """A softmax with zeros where a whole row is masked (`SoftMax.cpp`): which elements are, which rows, and a choice."""
    view, out = op.takes[0], op.gives[0]
    dim = int(op.told.get("dim", -1)) % max(1, len(view.shape))
    shape = tuple(1 if d == dim else n for d, n in enumerate(view.shape))
    masked, rows = (_truths(what, out, each) for what, each in (("masked", view.shape), ("rows", shape)))
    yield from ROWS["_softmax"](replace(op, name="_softmax"))
    yield replace(pointwise("eq", (view,), (masked,), ("compare",)), share=UNROLLED, extra=CAST_START)
    yield from summing("all", masked, (dim,), (rows,))
    yield _placed(pointwise("where", (rows, out), (out,), ("select",)))


def _truths(what: str, view: View, shape: tuple[int, ...]) -> View:
    storage = storage_of_a_call(what, view, shape)
    return View(storage, shape, tuple(math.prod(shape[d + 1 :]) for d in range(len(shape))), "bool")


def _placed(made: Launch) -> Launch:
    """An elementwise kernel that computes every element's place, so that no operand is read against its order."""
    return replace(made, share=indexed(made.takes, made.gives), turned=False, extra=PLACES_START)


_SOFTMAX = ("subtract", "exponential", "divide")
ROWS: dict[str, Callable[[AtenOp], Iterator[Launch]]] = {
    **dict.fromkeys(SUMS, _reduction),
    **dict.fromkeys(("_softmax", "_log_softmax"), _rows(_SOFTMAX, reductions=2, softmax=True, share=TWICE_READ)),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"),
        _rows(("multiply", "subtract", "multiply"), softmax=True),
    ),
    "_safe_softmax": _safe_softmax,
    "native_layer_norm": _rows(("subtract", "multiply", "multiply", "add"), reductions=2, share=1.0),
    "_fused_rms_norm": _rows(("multiply", "multiply"), share=1.0),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), _layer_norm_backward),
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    **dict.fromkeys(
        (
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "cudnn_batch_norm",
            "_batch_norm_with_update",
        ),
        _batch_norm,
    ),
    **dict.fromkeys(
        ("native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward"), _batch_norm_backward
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _loss_backward),
    **dict.fromkeys(("cumsum", "cumprod"), _scan),
}
