"""ATen calls as the pieces that Inductor schedules: loops over elements, sums, and calls of libraries; free of torch.

Inductor's decompositions (`torch/_inductor/decomposition.py`, `torch/_decomp`) leave a norm or a softmax as its sums and the
loops around them, so that each can be fused with what stands before and behind. A loop that nothing but other loops reads has no
memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from meshcast.programs.pytorch.eager.arithmetic import MOVES, POINTWISE, WINDOWED, plain_name
from meshcast.programs.pytorch.eager.sums import SUMS, along_rows, normalised, reduced_dims
from meshcast.programs.pytorch.inductor.equal_calls import SameLoops
from meshcast.programs.pytorch.inductor.padded_operands import padded_operands
from meshcast.programs.pytorch.inductor.split_sums import stages_of_sum
from meshcast.programs.pytorch.recording.calls import AtenOp, Phase, Recording, View

# loop: every element of the result on its own; rows, columns: sums along, or down to, the innermost dimension.
Kind = Literal["loop", "rows", "columns", "library"]

# Operators whose decompositions (`torch/_decomp/decompositions.py`) read an operand several times: its place, and how often.
_OFTEN = {
    "hardtanh_backward_mask": (0, 2), "hardswish": (0, 2), "hardswish_backward": (1, 3), "silu": (0, 2), "silu_backward": (1, 2),
    "gelu": (0, 2), "gelu_backward": (1, 3), "leaky_relu": (0, 2), "elu": (0, 2), "mish": (0, 2), "softplus": (0, 2),
    "sigmoid_backward": (1, 2), "tanh_backward": (1, 2),
}  # fmt: skip
_RANDOM = frozenset(["native_dropout", "bernoulli", "rand", "randn", "uniform", "normal", "exponential", "random"])
# Gradients that compare an operand, by its place, and read no more of it.
_MASKED = {"threshold_backward": 1, "hardtanh_backward": 1, "leaky_relu_backward": 1}
_LIBRARY = [
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "mv",
    "dot",
    "addmv",
    "_grouped_mm",
    "convolution",
    "convolution_backward",
    "embedding_dense_backward",
    "sort",
    "topk",
    "cumsum",
    "cumprod",
    "index_put",
    "scatter_add",
    "scatter",
    "index_add",
    "scatter_reduce",
    "index_reduce",
    "masked_scatter",
    "_unsafe_index_put",
]


@dataclass(slots=True, kw_only=True, eq=False)
class LoopPiece:
    """One loop, sum or call."""

    number: int
    kind: Kind
    name: str
    phase: Phase
    reads: list[tuple[LoopPiece | None, View]]  # who made what is read; None: it was there before
    gives: tuple[View, ...]
    shape: tuple[int, ...]  # that it runs over
    dims: tuple[int, ...] = ()  # summed over
    ops: tuple[str, ...] = ()
    op: AtenOp | None = None  # of a library's call
    place: int = -1  # of its call in the recording
    fixed: bool = False  # not to be computed again: random numbers
    aside: bool = False  # of the forward pass, which does not need it itself
    users: list[LoopPiece] = field(default_factory=list)

    @property
    def elements(self) -> int:
        """That it runs over."""
        return math.prod(self.shape)

    @property
    def left(self) -> int:
        """Of a sum: its results."""
        return math.prod(n for d, n in enumerate(self.shape) if d not in self.dims)

    @property
    def bytes(self) -> int:
        """Of what it gives."""
        return sum(view.bytes for view in self.gives)

    @property
    def uses(self) -> int:
        """How often it is read by its own pass's operators, once they are decomposed."""
        found = 0
        for user in {id(user): user for user in self.users if user.phase == self.phase}.values():
            place, often = _OFTEN.get(plain_name(user.name), (-1, 1))
            read = [i for i, (maker, _) in enumerate(user.reads) if maker is self]
            found += often if place in read else 1
        return found

    @property
    def windowed(self) -> bool:
        """Whether an element's neighbours are read for it too."""
        return plain_name(self.name) in WINDOWED

    @property
    def stages(self) -> list[int]:
        """Of a sum that is split: its parts after each kernel but the last."""
        if self.kind not in ("rows", "columns"):
            return []
        moments = "norm" in self.name and not self.name.endswith("backward")
        summed = self.elements // max(1, self.left)
        return stages_of_sum(self.left, summed, rows=self.kind == "rows", moments=moments)

    @property
    def separate(self) -> int:
        """Sums that are taken beside each other: the gradients of a norm's scale and bias."""
        gradients = self.kind == "columns" or "batch_norm" in self.name
        return 2 if gradients and "norm" in self.name and self.name.endswith("backward") else 1


class Pieces:
    """Takes a recording apart, call by call."""

    def __init__(self, recording: Recording, *, channels_last: bool = True) -> None:
        self.all: list[LoopPiece] = []
        self._channels: Kind = "columns" if channels_last else "rows"  # sums of each channel of images
        self._sizes = recording.sizes
        self._made: dict[int, LoopPiece] = {}  # storage -> who wrote it last
        self._same = SameLoops()
        self._next = max(recording.sizes, default=0) + 1
        self._looked_at = {view.storage for op in recording.ops for view in op.takes}
        self._looked_at |= {view.storage for view in recording.returned}
        self._offsets: dict[int, View] = {}  # of a pooling: what stands for its indices
        for place, op in enumerate(recording.ops):
            if op.shares or op.phase == "optimizer" or not any(view.elements for view in op.gives):
                continue
            self._take_apart(self._same.reading(op), place)
        self.all.sort(key=lambda piece: piece.phase != "forward")  # masks are made once the forward pass is over
        for number, piece in enumerate(self.all):
            piece.number = number

    def _add(
        self,
        kind: Kind,
        op: AtenOp,
        place: int,
        takes: tuple[View, ...],
        gives: tuple[View, ...],
        *,
        shape: tuple[int, ...],
        ops: tuple[str, ...] = (),
        dims: tuple[int, ...] = (),
        name: str = "",
        whole: bool = False,
    ) -> LoopPiece:
        reads = [(self._made.get(view.storage), view) for view in takes]
        piece = LoopPiece(
            number=len(self.all),
            kind=kind,
            name=name or op.name,
            phase=op.phase,
            reads=reads,
            gives=gives,
            shape=shape,
            dims=dims,
            ops=ops,
            op=op if whole else None,
            place=place,
            fixed=plain_name(op.name) in _RANDOM and not (gives and takes),
        )
        for maker, _ in reads:
            if maker is not None:
                maker.users.append(piece)
        for view in gives:
            self._made[view.storage] = piece
        self.all.append(piece)
        return piece

    def _in_part(self, view: View) -> bool:
        """Whether a write leaves a part of its storage as it was."""
        return view.bytes < self._sizes.get(view.storage, 0)

    def _small(self, count: int) -> View:
        """A tensor of fp32 that only pieces know of."""
        self._next += 1
        return View(self._next, (count,), (1,), "float32")

    def _new(self, like: View, shape: tuple[int, ...], dtype: str) -> View:
        """A tensor that only pieces know of: as `like` lies where it has its shape, else in order.

        Offsets of a pooling are written by the loop that would write its indices, channels last where those are; a padded copy
        has rows of another length than what it is made of.
        """
        self._next += 1
        strides = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
        return View(self._next, shape, strides if shape != like.shape else like.strides, dtype)

    def _with_padding(self, op: AtenOp, place: int) -> AtenOp:
        """A product of padded operands, which loops copy."""
        takes = list(op.takes)
        for number, shape in padded_operands(op).items():
            takes[number] = self._new(takes[number], shape, takes[number].dtype)
            self._add("loop", op, place, (op.takes[number],), (takes[number],), shape=shape, name="constant_pad_nd")
        return op if tuple(takes) == op.takes else replace(op, takes=tuple(takes))

    def _without_bias(self, op: AtenOp, place: int) -> AtenOp:
        """A convolution's gradients but that of its bias, which is a sum like any other (`torch/_inductor/decomposition.py`)."""
        mask = op.told.get("output_mask")
        if not isinstance(mask, tuple) or not mask[-1] or not op.gives:
            return op
        gradient = op.takes[0]
        channels = tuple(d for d in range(len(gradient.shape)) if d != 1)
        self._add(
            self._channels, op, place, (gradient,), op.gives[-1:], shape=gradient.shape, dims=channels, name="sum_bias"
        )
        return replace(op, gives=op.gives[:-1], told={**op.told, "output_mask": (*mask[:-1], False)})

    def _with_offsets(self, op: AtenOp) -> AtenOp:
        """A pooling whose indices are bytes, places in the window (`_low_memory_max_pool_with_offsets`), where they are read."""
        if op.name != "max_pool2d_with_indices":
            return replace(op, takes=tuple(self._offsets.get(view.storage, view) for view in op.takes))
        result, indices = op.gives
        if indices.storage not in self._looked_at:
            return replace(op, gives=(result,))
        self._offsets[indices.storage] = self._new(indices, indices.shape, "int8")
        return replace(op, gives=(result, self._offsets[indices.storage]))

    def _take_apart(self, op: AtenOp, place: int) -> None:
        name = plain_name(op.name)
        if name.startswith("max_pool2d"):
            op = self._with_offsets(op)
        op = self._with_padding(op, place)
        if name == "convolution_backward":
            op = self._without_bias(op, place)
        takes = tuple(view for view in op.takes if view.elements)
        if name in ("fill", "zero") and takes and not self._in_part(op.gives[0]):
            takes = ()
        if name.startswith("_scaled_dot_product") or name in _LIBRARY:
            bias = name == "convolution" and len(takes) > 2
            self._add("library", op, place, takes[:2] if bias else takes, op.gives, shape=op.gives[0].shape, whole=True)
            if bias:
                self._add(
                    "loop",
                    op,
                    place,
                    (op.gives[0], takes[2]),
                    op.gives,
                    shape=op.gives[0].shape,
                    ops=("add",),
                    name="bias",
                )
            return
        if name == "native_dropout":  # the mask is kept, what it is multiplied with is not
            self._add(
                "loop",
                op,
                place,
                (),
                op.gives[1:],
                shape=op.gives[1].shape,
                ops=("multiply", "xor", "compare"),
                name="random",
            )
            self._add(
                "loop",
                op,
                place,
                (*takes, op.gives[1]),
                op.gives[:1],
                shape=op.gives[0].shape,
                ops=("multiply", "multiply"),
            )
            return
        if name in _MASKED and op.phase == "backward":
            takes = self._masked(op, place, takes, _MASKED[name])
        parts = list(self._parts(op, name, takes))
        if len(parts) == 1 and parts[0][0] == "loop" and name not in _RANDOM:
            makers = [self._made.get(view.storage) for view in takes]
            if self._same.known(op, [maker.number if maker else -1 for maker in makers]):
                return
        for kind, views, gives, shape, ops, dims in parts:
            self._add(kind, op, place, views, gives, shape=shape, ops=ops, dims=dims)

    def _masked(self, op: AtenOp, place: int, takes: tuple[View, ...], compared: int) -> tuple[View, ...]:
        """What a gradient reads where it asks a value of the forward pass only whether it lies within bounds: a byte an element.

        The comparison reads nothing of the backward pass, so that the partitioner may have it in either.
        """
        value = takes[compared]
        self._next += 1
        mask = View(self._next, value.shape, value.strides, "bool", 0)
        piece = self._add(
            "loop", op, place, (value,), (mask,), shape=value.shape, ops=("compare",), name=f"{op.name}_mask"
        )
        piece.phase, piece.aside = "forward", True
        return (*takes[:compared], mask, *takes[compared + 1 :])

    def _parts(
        self, op: AtenOp, name: str, takes: tuple[View, ...]
    ) -> Iterator[tuple[Kind, tuple[View, ...], tuple[View, ...], tuple[int, ...], tuple[str, ...], tuple[int, ...]]]:
        """(kind, reads, results, shape, ops, summed dimensions) of a call's parts."""
        wide = max(takes, key=lambda view: view.elements) if takes else op.gives[0]
        shape, rank = wide.shape, len(wide.shape)
        image = tuple(d for d in range(rank) if d != 1)
        if "batch_norm" in name and name.endswith("backward"):
            sums = (self._small(shape[1]), self._small(shape[1]))
            yield self._channels, takes, (*op.gives[1:], *sums[:1]), shape, ("subtract", "multiply"), image
            yield "loop", (*takes, sums[0]), op.gives[:1], shape, ("multiply", "subtract", "multiply"), ()
        elif "batch_norm" in name:
            train = bool(op.told.get("training", True)) and "no_training" not in name
            statistics = self._small(2 * shape[1])
            if train:
                yield self._channels, takes[:1], (statistics, *op.gives[1:]), shape, ("subtract", "multiply"), image
            yield (
                "loop",
                (*takes, *((statistics,) if train else ())),
                op.gives[:1],
                shape,
                ("subtract", "multiply", "multiply", "add"),
                (),
            )
        elif name == "native_group_norm_backward":
            moments = self._small(2 * math.prod(shape[:2]))
            yield "rows", takes, (moments, *op.gives[1:]), shape, ("multiply",), tuple(range(2, rank))
            yield "loop", (*takes, moments), op.gives[:1], shape, ("multiply", "add", "multiply", "add"), ()
        elif name in ("native_layer_norm_backward", "_fused_rms_norm_backward"):
            dims = normalised(op, wide)
            outer = tuple(d for d in range(rank) if d not in dims)
            row_sums = self._small(2 * math.prod(shape[d] for d in outer))
            yield "rows", takes, (row_sums,), shape, ("multiply", "multiply"), dims
            yield "loop", (*takes, row_sums), op.gives[:1], shape, ("multiply", "subtract", "multiply"), ()
            if len(op.gives) > 1:
                yield "columns", takes, op.gives[1:], shape, ("subtract", "multiply", "multiply"), outer
        elif name in ("native_layer_norm", "_fused_rms_norm", "native_group_norm"):
            dims = normalised(op, wide) if name != "native_group_norm" else tuple(range(1, rank))
            small = op.gives[1:] or (self._small(math.prod(n for d, n in enumerate(shape) if d not in dims)),)
            yield "rows", takes[:1], small, shape, ("subtract", "multiply"), dims
            yield "loop", (*takes, *small), op.gives[:1], shape, ("subtract", "multiply", "multiply", "add"), ()
        elif "softmax" in name:
            dim = op.told.get("dim", -1)
            dims = (int(dim) % rank,) if rank else ()
            small_ = self._small(2 * max(1, wide.elements // max(1, math.prod(shape[d] for d in dims))))
            yield "rows", takes, (small_,), shape, ("subtract", "exponential"), dims
            yield "loop", (*takes, small_), op.gives[:1], shape, ("subtract", "exponential", "multiply"), ()
        elif name.startswith("nll_loss"):
            rows = View(takes[0].storage, takes[0].shape[:1], (1,), takes[0].dtype, takes[0].offset)
            if name.endswith("backward"):
                yield "loop", (rows,), op.gives[:1], op.gives[0].shape, ("compare", "select", "multiply"), ()
            else:
                yield "rows", (rows,), op.gives, rows.shape, (), (0,)
        elif name in SUMS:
            dims = reduced_dims(op, takes[0])
            kind: Kind = "rows" if along_rows(takes[0], dims) else "columns"
            yield kind, takes, op.gives, takes[0].shape, ("multiply",) if "norm" in name else (), dims
        else:
            ops = POINTWISE.get(name, MOVES.get(name, ("add",)))
            yield "loop", takes, op.gives, op.gives[0].shape, ops, ()
