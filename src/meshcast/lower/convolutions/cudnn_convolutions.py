"""Convolutions as XLA:GPU hands them to cuDNN: filters in O-H-W-I order, even padding, gradients by their own calls.

- layout_assignment: activations stay N-H-W-C; a filter in any other order than `o01i` is transposed first, once however
  many convolutions read it, and a filter gradient's result is transposed back. A 1 x 1 filter that only lacks the
  spatial dimensions in between is not moved.
- conv_rewriter: the reversed filter of an input gradient is the filter of the forward pass: cuDNN reverses it.
- algebraic_simplifier (FoldConvInputPad): a pad of an image is the padding of the convolutions that read it.
- cudnn_pad_for_convolutions / conv_padding_legalization: padding that differs between both sides is made explicit by a
  pad of the input, which fuses with what computes that; the result of a strided convolution's input gradient
  is computed with even padding and sliced.
- algebraic_simplifier: the filter gradient of a transposed layer has a dilated input and a larger filter, and changes them over.
- conv_padding_legalization: a forward call whose input is dilated, or whose padding is uneven, gets its dilation and padding as
  zeros in its operands, and multiplies by them: a transposed layer of stride 2 (its filter not reversed) does four times its
  work, a causal one of 3 taps that are 16 apart has a filter of 33. A dilated filter with even padding stays as it is.
- cuDNN itself pads fewer than 8 input channels to 8, in its workspace, before the convolution.
"""

from __future__ import annotations

import math
from dataclasses import replace

from meshcast.lower.value_types import ValueTypes, moved, resized
from meshcast.workload import DTYPE_BITS, Convolution, Op, OpKind, valid_pairs

Padding = tuple[tuple[int, int], ...]
CHANNELS = 8  # elements of 2 bytes that make a 16-byte load
NATIVE = "o{}i"  # cuDNN's filter order for channels-last activations


class ConvolutionRewriter:
    """Rewrites the convolutions of one block; equal transposes and pads are made once.

    Args:
        values: Types, to which new values are added.
    """

    def __init__(self, values: ValueTypes) -> None:
        self._values = values
        self._made: dict[object, int] = {}
        self._reversed: dict[int, int] = {}
        self._pads: dict[int, Op] = {}

    def note(self, op: Op) -> None:
        """Remembers what a reversal reverses, and what is padded."""
        if op.name.endswith("reverse") and op.operands:
            self._reversed[op.results[0]] = op.operands[0]
        elif op.name == "stablehlo.pad":
            self._pads[op.results[0]] = op

    def rewrite(self, op: Op) -> list[Op]:
        """The op with what has to run around it."""
        shape = op.cost.geometry
        if op.cost.kind is not OpKind.CONVOLUTION or not isinstance(shape, Convolution) or len(op.operands) < 2:
            return [op]
        before: list[Op] = []
        after: list[Op] = []
        lhs, rhs, result = op.operands[0], op.operands[1], op.results[0]
        lhs, shape = self._unpadded(shape, lhs)
        if (exchanged := exchanged_operands(shape)) is not None:
            lhs, rhs = (
                self._once(op, OpKind.TRANSPOSE, value, (role,), before)
                for value, role in ((rhs, "input"), (lhs, "filter"))
            )
            if has_holes(exchanged):
                lhs, rhs, exchanged = self._without_holes(op, exchanged, lhs, rhs, before)
            return [*before, resized(op, self._values, operands=(lhs, rhs), results=(result,), geometry=exchanged)]
        if is_forward_call(shape, reversed_filter=rhs in self._reversed) and has_holes(shape):
            lhs, rhs, shape = self._without_holes(op, shape, lhs, rhs, before)
        if is_filter_gradient(shape):
            result = self._filter_gradient_result(op, shape, after)
        else:
            rhs = self._filter(op, shape, rhs, before)
        padding = forward_padding(shape)
        if any(high > low for low, high in padding):
            if max(shape.lhs_dilation) > 1:
                result = self._sliced(op, shape, padding, result, after)
            else:
                lhs, shape = self._padded(op, shape, padding, lhs, before)
        wide = self._widened(op, shape, lhs, before)
        # What it was widened from is still an operand of cuDNN's call, if not of its kernel.
        widened = () if wide == lhs else (lhs,)
        operands = (wide, rhs, *widened, *op.operands[2:])  # an epilogue's come last
        core = resized(op, self._values, operands=operands, results=(result,), geometry=shape)
        return [*before, core, *after]

    def _unpadded(self, shape: Convolution, value: int) -> tuple[int, Convolution]:
        """What a pad puts zeros around, and the convolution that has them as padding, where only images are padded."""
        pad = self._pads.get(value)
        if pad is None or not pad.cost.starts or max(shape.lhs_dilation, default=1) > 1:
            return value, shape
        small, large = (self._values.tensors[each].shape for each in (pad.operands[0], value))
        places = [shape.layout.partition(",")[0].index(str(d)) for d in range(len(shape.in_spatial))]
        if any(small[place] != large[place] for place in range(len(large)) if place not in places):
            return value, shape
        padding = tuple(
            [
                (low + pad.cost.starts[place], high + large[place] - small[place] - pad.cost.starts[place])
                for place, (low, high) in zip(places, shape.padding, strict=True)
            ]
        )
        return pad.operands[0], replace(shape, in_spatial=tuple([small[place] for place in places]), padding=padding)

    def _without_holes(
        self, op: Op, shape: Convolution, lhs: int, rhs: int, before: list[Op]
    ) -> tuple[int, int, Convolution]:
        """Input and filter with zeros in place of dilation and padding, and the convolution of both."""
        inputs, _, rest = shape.layout.partition(",")
        dense = dense_convolution(shape)
        wide = self._zeroed(op, lhs, inputs, dense.in_spatial, before)
        taps = self._zeroed(op, rhs, rest.partition("->")[0], dense.kernel, before)
        return wide, taps, dense

    def _zeroed(self, op: Op, value: int, labels: str, spatial: tuple[int, ...], before: list[Op]) -> int:
        """A value with zeros between and around its elements."""
        tensor = self._values.tensors[value]
        sizes = list(tensor.shape)
        for d, size in enumerate(spatial):
            sizes[labels.index(str(d))] = size
        wide = tuple(sizes)
        return value if wide == tensor.shape else self._once(op, OpKind.MOVE, value, ("zeroed", wide), before, wide)

    def _filter(self, op: Op, shape: Convolution, value: int, before: list[Op]) -> int:
        """The filter in cuDNN's order."""
        labels = shape.layout.partition(",")[2].partition("->")[0]
        taps = max(shape.kernel, default=1) > 1
        if taps and value in self._reversed:
            value = self._reversed[value]
            labels = labels.translate(str.maketrans("io", "oi"))
        return value if _native(labels, taps) else self._once(op, OpKind.TRANSPOSE, value, ("filter",), before)

    def _filter_gradient_result(self, op: Op, shape: Convolution, after: list[Op]) -> int:
        labels = shape.layout.partition("->")[2].translate(str.maketrans("bf", "io"))
        if _native(labels, max(shape.out_spatial, default=1) > 1):
            return op.results[0]
        tensor = self._values.tensors[op.results[0]]
        native = self._values.new(tuple(reversed(tensor.shape)), tensor.dtype)
        after.append(moved(op, OpKind.TRANSPOSE, "stablehlo.transpose", native, op.results[0], self._values))
        return native

    def _padded(
        self, op: Op, shape: Convolution, padding: Padding, value: int, before: list[Op]
    ) -> tuple[int, Convolution]:
        labels = shape.layout.partition(",")[0]
        tensor = self._values.tensors[value]
        sizes = list(tensor.shape)
        spatial = []
        for d, (size, (low, high)) in enumerate(zip(shape.in_spatial, padding, strict=True)):
            spatial.append(size + low + high)
            sizes[labels.index(str(d))] = size + low + high
        padded = self._once(op, OpKind.MOVE, value, ("pad", tuple(sizes)), before, tuple(sizes))
        even = tuple((0, 0) for _ in shape.padding)
        return padded, replace(shape, in_spatial=tuple(spatial), padding=even)

    def _widened(self, op: Op, shape: Convolution, value: int, before: list[Op]) -> int:
        """The input with its channels padded to what tensor cores load: every cuDNN call does it anew, in its workspace."""
        tensor = self._values.tensors[value]
        labels = shape.layout.partition(",")[0]
        channels = labels.index("b" if is_filter_gradient(shape) else "f")
        few = tensor.shape[channels] < CHANNELS <= shape.out_channels
        if not few or max(shape.feature_groups, shape.batch_groups) > 1 or DTYPE_BITS[tensor.dtype] != 16:
            return value
        sizes = (*tensor.shape[:channels], CHANNELS, *tensor.shape[channels + 1 :])
        wide = self._values.new(sizes, tensor.dtype)
        before.append(moved(op, OpKind.CUSTOM, "cudnn.pad", value, wide, self._values))
        return wide

    def _sliced(self, op: Op, shape: Convolution, padding: Padding, result: int, after: list[Op]) -> int:
        labels = shape.layout.partition("->")[2]
        tensor = self._values.tensors[result]
        sizes = list(tensor.shape)
        for d, (low, high) in enumerate(padding):
            sizes[labels.index(str(d))] += max(0, high - low)
        whole = self._values.new(tuple(sizes), tensor.dtype)
        name = "stablehlo.slice"
        after.append(moved(op, OpKind.SLICE, name, whole, result, self._values, read=tensor.bytes))
        return whole

    def _once(
        self, op: Op, kind: OpKind, value: int, key: tuple[object, ...], before: list[Op], sizes: tuple[int, ...] = ()
    ) -> int:
        """The moved form of a value; made anew only where no convolution before this one has done so."""
        found = self._made.get((value, *key))
        if found is None:
            tensor = self._values.tensors[value]
            found = self._values.new(sizes or tuple(reversed(tensor.shape)), tensor.dtype)
            self._made[(value, *key)] = found
            name = "stablehlo.transpose" if kind is OpKind.TRANSPOSE else "stablehlo.pad"
            before.append(moved(op, kind, name, value, found, self._values))
        return found


def forward_padding(shape: Convolution) -> Padding:
    """The padding of the forward pass that a convolution belongs to, as far as its windows reach.

    With stride s and kernel k, forward windows span `(out - 1) * s + k`. A filter gradient has the forward output as
    its filter and s as its filter's dilation; an input gradient has s as its input's dilation and pads by
    `k - 1 - low`.
    """
    found = []
    for d, (low, high) in enumerate(shape.padding):
        if is_filter_gradient(shape):
            span = (shape.kernel[d] - 1) * shape.rhs_dilation[d] + shape.out_spatial[d]
            found.append((low, max(0, span - shape.in_spatial[d] - low)))
        elif shape.lhs_dilation[d] > 1:
            before = shape.kernel[d] - 1 - low
            span = (shape.in_spatial[d] - 1) * shape.lhs_dilation[d] + shape.kernel[d]
            found.append((before, max(0, span - shape.out_spatial[d] - before)))
        else:
            found.append((low, high) if high > low else (high, low))
    return tuple(found)


def is_filter_gradient(shape: Convolution) -> bool:
    """Convolves over the batch, with an array of gradients as its filter: batch and channels of the input are exchanged.

    A batch comes first in every order of dimensions that activations have (`b01f`, `bf01`), so that channels before it are
    the batch of a forward convolution.
    """
    lhs = shape.layout.partition(",")[0]
    return lhs.index("f") < lhs.index("b")


def is_forward_call(shape: Convolution, *, reversed_filter: bool) -> bool:
    """Whether XLA hands cuDNN a forward convolution, and neither gradient's call (conv_rewriter.cc).

    `MatchBackwardFilter` wants one group, steps of 1 and an input without dilation; `MatchBackwardInput` one group, steps of 1, a
    filter without dilation that is reversed, or has one tap and an input with dilation.
    """
    if shape.feature_groups > 1 or max(shape.strides, default=1) > 1:
        return True
    if is_filter_gradient(shape):
        return max(shape.lhs_dilation, default=1) > 1
    spread = max(shape.lhs_dilation, default=1) > 1
    single = max(shape.kernel, default=1) == 1
    return max(shape.rhs_dilation, default=1) > 1 or not (reversed_filter or (spread and single))


def exchanged_operands(shape: Convolution) -> Convolution | None:
    """The convolution with input and filter exchanged, where XLA does so and no dilation is left in its input.

    `SwapConvOperands`: a filter that is larger than the input becomes the input. What dilated the input then dilates the filter,
    and padding grows by what the input is larger; the other way round it is a convolution of the same numbers. Layers of 3
    and 5 taps that double an image have uneven padding then (1, 0; 2, 1), so that zeros are written (`has_holes`): the filter is
    the whole smaller image with a zero between every two of its pixels.
    """
    dilated = max(shape.lhs_dilation, default=1) > 1 == max(shape.rhs_dilation, default=1)
    if not dilated or not is_filter_gradient(shape) or math.prod(shape.kernel) <= math.prod(shape.in_spatial):
        return None
    if max(shape.feature_groups, shape.batch_groups) > 1:
        return None
    longer = [(n - 1) * d + 1 - k for n, d, k in zip(shape.in_spatial, shape.lhs_dilation, shape.kernel, strict=True)]
    padding = tuple((more + low, more + high) for more, (low, high) in zip(longer, shape.padding, strict=True))
    if any(min(each) < 0 for each in padding):
        return None
    places = "".join(map(str, range(len(shape.kernel))))
    return replace(
        shape,
        batch=shape.out_channels,
        out_channels=shape.batch,
        in_spatial=shape.kernel,
        kernel=shape.in_spatial,
        padding=padding,
        lhs_dilation=shape.rhs_dilation,
        rhs_dilation=shape.lhs_dilation,
        lhs_dtype=shape.rhs_dtype,
        rhs_dtype=shape.lhs_dtype,
        layout=f"b{places}f,o{places}i->b{places}f",
    )


def has_holes(shape: Convolution) -> bool:
    """Whether a forward call's dilation becomes zeros: of its input always, of its filter beside uneven padding."""
    uneven = any(low != high or low < 0 for low, high in shape.padding)
    return max(shape.lhs_dilation, default=1) > 1 or (uneven and max(shape.rhs_dilation, default=1) > 1)


def dense_convolution(shape: Convolution) -> Convolution:
    """The convolution of an input and a filter that hold zeros in place of dilation and padding; its `macs` count them."""
    ones, even = (1,) * len(shape.kernel), ((0, 0),) * len(shape.kernel)
    dense = replace(
        shape,
        in_spatial=tuple(
            (size - 1) * step + 1 + low + high
            for size, step, (low, high) in zip(shape.in_spatial, shape.lhs_dilation, shape.padding, strict=True)
        ),
        kernel=tuple((size - 1) * step + 1 for size, step in zip(shape.kernel, shape.rhs_dilation, strict=True)),
        padding=even,
        lhs_dilation=ones,
        rhs_dilation=ones,
    )
    return replace(dense, macs=shape.macs * valid_pairs(dense) // max(1, valid_pairs(shape)))


def is_filter_gradient_call(shape: Convolution) -> bool:
    """Whether XLA calls cuDNN's filter gradient for it: not where the forward convolution was dilated.

    Its window then moves in steps, which the pattern of conv_rewriter (`MatchBackwardFilter`) does not have: the
    gradient is computed as a forward convolution whose filter is as large as an image.
    """
    return is_filter_gradient(shape) and max(shape.strides, default=1) == 1


def _native(labels: str, taps: bool) -> bool:
    digits = "".join(label for label in labels if label.isdigit())
    if taps:
        return labels == NATIVE.format(digits)
    return "".join(label for label in labels if not label.isdigit()) == "oi"
