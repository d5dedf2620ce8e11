"""The kernels that eager PyTorch launches for each ATen call on CUDA; free of torch.

Elementwise operators are one kernel each (`ATen/native/cuda/Loops.cuh`): vectorised where all operands lie alike and are of
one dtype, else unrolled, or with an index computed for every element. Operators on lists of tensors take chunks of 65,536
elements, at most 320 of them and a few tensors a launch (`ATen/native/cuda/MultiTensorApply.cuh`). `sums` has norms,
softmaxes, sums and losses, `libraries` products, convolutions, attention and tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from meshcast.programs.pytorch.eager.arithmetic import MOVES, POINTWISE, plain_name
from meshcast.programs.pytorch.eager.code_shapes import (
    CAST_START,
    CHUNK_CYCLES,
    DROPPED,
    FUNCTION_START,
    FUSED_CHUNK_CYCLES,
    FUSED_LISTS,
    JOINED_DIMS,
    LISTS,
    PLACES_START,
    PLANE,
    RESIZED_PIXELS,
    ROLLED,
    STREAM,
    UNROLLED,
    WINDOWS,
    against_order,
    bytes_of,
    indexed,
    joined,
    window_seconds,
)
from meshcast.programs.pytorch.eager.contiguous_operands import with_dense_operands
from meshcast.programs.pytorch.eager.libraries import LIBRARIES
from meshcast.programs.pytorch.eager.sums import ROWS, channels_last
from meshcast.programs.pytorch.eager.triton_code import arithmetic_seconds, has_functions, streaming_share
from meshcast.programs.pytorch.launches.launch import Arithmetic, Launch, pointwise
from meshcast.programs.pytorch.recording.calls import AtenOp, View

_CHUNK, _BLOCKS = 65536, 320
_TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # tensors a launch, by how many lists there are
_ADAM = ("multiply", "multiply", "add", "multiply", "multiply", "add", "sqrt", "add", "divide", "subtract")


def eager_launches(op: AtenOp, number: int = -1) -> list[Launch]:
    """The kernels of one call; none where it only makes another view, or where no element is written (`TensorIterator`).

    Args:
        op: The call.
        number: Its place in the recording.
    """
    if op.shares or not any(each.elements for each in op.gives):
        return []
    if op.name.startswith(("_foreach", "_fused_adam", "_fused_sgd")):
        made = _lists(op)
    else:
        op, copies = with_dense_operands(op)
        made = itertools.chain(copies, (_OWN.get(plain_name(op.name)) or _elementwise)(op))
    return [replace(launch, op=number) for launch in made if any(each.elements for each in launch.gives)]


def _read(op: AtenOp) -> tuple[View, ...]:
    """What is read of the operands: numbers in tensors of none are the host's."""
    return tuple(view for view in op.takes if view.shape or len(op.takes) == 1)


def _elementwise(op: AtenOp) -> Iterator[Launch]:
    name = plain_name(op.name)
    ops = POINTWISE.get(name, MOVES.get(name, ("add",)))
    takes = _read(op)
    if name in ("fill", "zero"):
        takes = ()
    yield shaped(pointwise(op.name, takes, op.gives, ops), always=name not in POINTWISE)


def shaped(launch: Launch, *, always: bool = False) -> Launch:
    """An elementwise kernel with the share that its operands' layouts leave it."""
    result = launch.gives[0]
    wide = [view for view in launch.takes if view.elements > 1]
    if launch.turned:
        return replace(launch, turned=False, extra=PLACES_START + against_order(launch.takes, launch.gives))
    if always or not all(_lies_as(view, result) for view in wide):
        return replace(launch, share=indexed(launch.takes, launch.gives), extra=PLACES_START)
    functions = has_functions(launch.stages[0].ops)
    if functions:  # which may take longer than memory does
        seconds = arithmetic_seconds(result.elements, launch.stages[0].ops)
        share = streaming_share(launch.takes, launch.gives, seconds)
        launch = replace(launch, share=share, extra=FUNCTION_START)
    up = any(view.bytes < result.bytes and view.dtype != "bool" for view in wide if view.elements == result.elements)
    mixed = len({view.dtype for view in wide if view.dtype not in ("bool", "int64")}) > 1
    return replace(launch, share=UNROLLED, extra=CAST_START) if up or mixed else launch


def _lies_as(view: View, other: View) -> bool:
    return view.shape == other.shape and view.dense_order is not None and view.dense_order == other.dense_order


def _dropout(op: AtenOp) -> Iterator[Launch]:
    yield replace(pointwise(op.name, _read(op), op.gives, POINTWISE["native_dropout"]), share=DROPPED)


def _joined(op: AtenOp) -> Iterator[Launch]:
    """One kernel, or a copy of each piece where they have several dtypes or too many dimensions (`cat_out_cuda`, `Shape.cu`).

    A stack along any dimension but one behind the last is joined as its pieces are, and seen in another shape (`at::stack`).
    """
    pieces = [view for view in op.takes if view.elements]
    dim = int(op.told.get("dim", 0))
    behind = op.name == "stack" and dim % len(op.gives[0].shape) == len(op.gives[0].shape) - 1
    dims = max((len(view.shape) for view in pieces), default=0) + behind
    if len(pieces) > 1 and dims <= JOINED_DIMS and len({view.dtype for view in pieces}) == 1:
        share = joined(op.takes, op.gives, dim=dim)
        yield replace(pointwise(op.name, _read(op), op.gives, ("select",)), share=share, extra=PLACES_START)
        return
    if len(pieces) == 1:
        yield pointwise(op.name, pieces, op.gives, ("select",))
        return
    for piece in pieces:
        yield _copied_into(piece, op.gives[0])


def _rolled(op: AtenOp) -> Iterator[Launch]:
    """One kernel a dimension (`roll_cuda`)."""
    shifts = op.told.get("shifts")
    for _ in range(len(shifts) if isinstance(shifts, tuple) else 1):
        yield replace(pointwise(op.name, op.takes, op.gives, ()), share=indexed(op.takes, op.gives) * ROLLED)


def _padded(op: AtenOp) -> Iterator[Launch]:
    """A fill and a copy into a part; a plain copy where nothing is added."""
    if op.takes[0].elements == op.gives[0].elements:
        yield pointwise("copy", op.takes, op.gives, ())
        return
    yield from _into_part(op)


def _into_part(op: AtenOp) -> Iterator[Launch]:
    """Zeros, and a copy into a part of them."""
    yield pointwise("fill", (), op.gives, ())
    yield replace(_copied_into(op.takes[0], op.gives[0]), extra=0.0)


def _copied_into(small: View, whole: View) -> Launch:
    """A copy into a part of a tensor."""
    part = View(whole.storage, small.shape, _strides(small.shape), whole.dtype)
    return Launch(
        name="copy_",
        form="pointwise",
        takes=(small,),
        gives=(part,),
        stages=(Arithmetic(),),
        share=indexed((small,), (part,)),
        extra=PLACES_START,
    )


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _windows(op: AtenOp) -> Iterator[Launch]:
    backward = op.name.endswith("backward")
    if backward:
        yield pointwise("fill", (), op.gives, ())
    made = pointwise(op.name, _read(op), op.gives, MOVES.get(op.name, ("add",)))
    moved = bytes_of([*made.takes, *made.gives])
    if op.name == "upsample_bilinear2d" and channels_last(op.takes[0]):
        yield replace(made, extra=max(0.0, op.gives[0].elements * RESIZED_PIXELS - moved / STREAM))
    elif op.name == "_adaptive_avg_pool2d":
        planes = math.prod(op.gives[0].shape[:-2])
        yield replace(made, extra=max(0.0, planes * PLANE - moved / STREAM))
    elif "pool" in op.name and "adaptive" not in op.name and not channels_last(op.takes[0]):
        told = op.told.get("kernel_size") or (1, 1)
        taps = math.prod(told) if len(told) > 1 else told[0] ** 2
        yield replace(made, extra=window_seconds(op.name, op.gives[0].elements, taps, moved))
    else:
        yield replace(made, share=WINDOWS)


def _lists(op: AtenOp) -> Iterator[Launch]:
    """Updates of the first list, and of an optimizer's state, by the others."""
    lists = [
        tuple(view for view, place in zip(op.takes, op.place, strict=True) if place == name)
        for name in dict.fromkeys(op.place)
    ]
    lists = [each for each in lists if len(each) == len(lists[0])]
    fused = op.name.startswith("_fused")
    if fused and len(lists) > 1 and lists[-1][0].elements == 1 < lists[0][0].elements:
        lists = lists[:-1]  # counts of steps
    limit = _TENSORS.get(len(lists), 30)
    written = [j for j in ((0, 2, 3) if "adam" in op.name else (0, 2) if fused else (0,)) if j < len(lists)]

    def launch(members: Sequence[tuple[int, int]]) -> Launch:
        cut = [[_first(each[i], chunks * _CHUNK) for i, chunks in members] for each in lists]
        longest = max(view.elements for view in cut[0])
        work = Arithmetic(ops=_ADAM if fused else ("multiply", "add"))
        return Launch(
            name=op.name, form="pointwise", takes=tuple(view for each in cut for view in each),
            gives=tuple(view for j in written for view in cut[j]), stages=(work,),
            told={"list": len(members)},
            share=FUSED_LISTS["float32" if lists[0][0].dtype == "float32" else "half"] if fused else LISTS,
            block_cycles=(FUSED_CHUNK_CYCLES if fused else CHUNK_CYCLES) * min(1.0, longest / _CHUNK),
        )  # fmt: skip

    group: list[tuple[int, int]] = []
    for i, view in enumerate(lists[0]):
        left = max(1, math.ceil(view.elements / _CHUNK))
        while left:
            taken = min(left, _BLOCKS - sum(chunks for _, chunks in group))
            group.append((i, taken))
            left -= taken
            if sum(chunks for _, chunks in group) == _BLOCKS or (not left and len(group) >= limit):
                yield launch(group)
                group = []
    if group:
        yield launch(group)


def _first(view: View, count: int) -> View:
    """The first elements of a tensor."""
    return view if view.elements <= count else View(view.storage, (count,), (1,), view.dtype, view.offset)


_OWN: dict[str, Callable[[AtenOp], Iterator[Launch]]] = {
    **ROWS,
    **LIBRARIES,
    "native_dropout": _dropout,
    **dict.fromkeys(("cat", "stack"), _joined),
    "roll": _rolled,
    "constant_pad_nd": _padded,
    **dict.fromkeys(("slice_backward", "select_backward", "unfold_backward"), _into_part),
    **dict.fromkeys(
        (
            "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
            "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "upsample_bilinear2d", "upsample_bicubic2d",
        ),
        _windows,
    ),
}  # fmt: skip


def launched_bytes(launch: Launch) -> int:
    """Bytes that a launch moves."""
    return bytes_of(launch.takes) + bytes_of(launch.gives)
