"""Convolutions of any layout, grouping, stride, dilation and padding.

FLOPs = 2 x multiply-adds, and a multiply-add with padding or with a hole of the dilated input is not one. The count
separates by spatial dimension: MACs = batch x out_channels x kernel_in_channels x prod_d valid(d).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo

from meshcast.workload.graph import Convolution, Cost, OpKind, Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules import attributes
from meshcast.workload.rules.costs import streamed
from meshcast.workload.rules.gemm import flops_per_mac, wider


@lru_cache(maxsize=4096)
def valid_positions(
    *, size: int, out: int, kernel: int, stride: int, pad_low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    """Pairs (kernel tap, output position) of one spatial dimension that meet a real input element.

    Tap t of output o looks at position `o * stride + t * rhs_dilation - pad_low` of the dilated input; a real element
    sits there when the position is a multiple of `lhs_dilation` in `[0, (size - 1) * lhs_dilation]`. For a given tap
    the outputs that qualify are an arithmetic progression, so the count takes no loop over outputs.
    """
    step = lhs_dilation // math.gcd(stride, lhs_dilation)
    count = 0
    for tap in range(kernel):
        offset = tap * rhs_dilation - pad_low
        first = max(0, -(offset // stride))  # the smallest o with o * stride + offset >= 0
        last = min(out - 1, ((size - 1) * lhs_dilation - offset) // stride)
        for position in range(first, min(last + 1, first + step)):
            if (position * stride + offset) % lhs_dilation == 0:
                count += (last - position) // step + 1
                break
    return count


def valid_pairs(shape: Convolution) -> int:
    """Pairs of a place of the result and a tap that falls on an element: of all dimensions, their product."""
    return math.prod(
        valid_positions(
            size=shape.in_spatial[d],
            out=shape.out_spatial[d],
            kernel=shape.kernel[d],
            stride=shape.strides[d],
            pad_low=shape.padding[d][0],
            lhs_dilation=shape.lhs_dilation[d],
            rhs_dilation=shape.rhs_dilation[d],
        )
        for d in range(len(shape.kernel))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionDims:
    """Where the batch, channel and spatial dimensions of the three tensors are, and how the window moves.

    Each side lists its dimensions as (batch, feature, spatial...); the kernel's as (input, output, spatial...).
    """

    lhs: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]

    @property
    def layout(self) -> str:
        """XLA's dim labels, e.g. `b01f,01io->b01f`."""
        return f"{_labels(self.lhs, 'bf')},{_labels(self.kernel, 'io')}->{_labels(self.out, 'bf')}"


def convolution_geometry(
    place: ConvolutionDims, lhs: Tensor, kernel: Tensor, out: Tensor, precision: str = "DEFAULT"
) -> Convolution:
    """The geometry of convolving `lhs` with `kernel` into `out`, all local.

    Groups are taken from the local shapes (channels / kernel channels), since sharding channels shares the groups out.
    """
    batch, in_channels, *in_spatial = (lhs.shape[dim] for dim in place.lhs)
    kernel_channels, _, *taps = (kernel.shape[dim] for dim in place.kernel)
    out_batch, out_channels, *out_spatial = (out.shape[dim] for dim in place.out)
    found = Convolution(
        batch=batch,
        in_channels=in_channels,
        out_channels=out_channels,
        in_spatial=tuple(in_spatial),
        out_spatial=tuple(out_spatial),
        kernel=tuple(taps),
        strides=place.strides,
        padding=place.padding,
        lhs_dilation=place.lhs_dilation,
        rhs_dilation=place.rhs_dilation,
        feature_groups=max(1, in_channels // max(1, kernel_channels)),
        batch_groups=max(1, batch // max(1, out_batch)),
        macs=0,
        lhs_dtype=lhs.dtype,
        rhs_dtype=kernel.dtype,
        out_dtype=out.dtype,
        layout=place.layout,
        precision=precision,
    )
    return replace(found, macs=out_batch * out_channels * kernel_channels * valid_pairs(found))


def filter_gradient(forward: Convolution) -> Convolution:
    """The convolution that gives the filter's gradient of a forward one.

    Batch and input channels are exchanged: the input is convolved over the batch with the result's gradient, dilated by the
    stride, in as many steps as the filter has taps. Groups of channels become groups of batches.
    """
    groups = forward.feature_groups
    lhs, kernel, out = _sides(forward)
    exchanged = str.maketrans("bfio", "fbbf")
    layout = f"{lhs.translate(exchanged)},{out.translate(str.maketrans('bf', 'io'))}->{kernel.translate(exchanged)}"
    return replace(
        forward,
        batch=forward.in_channels,
        in_channels=forward.batch,
        out_spatial=forward.kernel,
        kernel=forward.out_spatial,
        strides=forward.rhs_dilation,
        rhs_dilation=forward.strides,
        feature_groups=1,
        batch_groups=groups,
        rhs_dtype=forward.out_dtype,
        out_dtype=forward.rhs_dtype,
        layout=layout,
    )


def input_gradient(forward: Convolution) -> Convolution:
    """The convolution that gives the input's gradient of a forward one.

    The result's gradient, dilated by the stride, is convolved with the filter, whose channels are exchanged; it is padded by
    what the filter's span leaves of the forward padding.
    """
    lhs, kernel, out = _sides(forward)
    spans = [(taps - 1) * dilation for taps, dilation in zip(forward.kernel, forward.rhs_dilation, strict=True)]
    padding = []
    for d, span in enumerate(spans):
        low = span - forward.padding[d][0]
        reached = (forward.out_spatial[d] - 1) * forward.strides[d] + 1 + low
        padding.append((low, forward.in_spatial[d] + span - reached))
    return replace(
        forward,
        in_channels=forward.out_channels,
        out_channels=forward.in_channels,
        in_spatial=forward.out_spatial,
        out_spatial=forward.in_spatial,
        strides=(1,) * len(spans),
        padding=tuple(padding),
        lhs_dilation=forward.strides,
        lhs_dtype=forward.out_dtype,
        out_dtype=forward.lhs_dtype,
        layout=f"{out},{kernel.translate(str.maketrans('io', 'oi'))}->{lhs}",
    )


def _sides(geometry: Convolution) -> tuple[str, str, str]:
    """Labels of input, filter and result."""
    sides, _, out = geometry.layout.partition("->")
    lhs, _, kernel = sides.partition(",")
    return lhs, kernel, out


def convolution_cost(reading: OpReading, geometry: Convolution) -> Cost:
    """The cost of the convolution `geometry` as this op runs it."""
    return streamed(
        reading,
        OpKind.CONVOLUTION,
        dtype=wider(geometry.lhs_dtype, geometry.rhs_dtype),
        matrix_flops=flops_per_mac(geometry.lhs_dtype) * geometry.macs,
        geometry=geometry,
    )


def _convolution(reading: OpReading) -> Cost:
    """Padding comes as an attribute."""
    lhs, kernel = reading.operands
    precision = attributes.precision(reading.op)
    geometry = convolution_geometry(_placement(reading.op), lhs, kernel, reading.results[0], precision)
    return convolution_cost(reading, geometry)


def _dynamic_conv(reading: OpReading) -> Cost:
    """Padding comes as a value: read where it is a constant, else what the shapes need, shared between both sides."""
    lhs, kernel = reading.operands[:2]
    out = reading.results[0]
    place = _placement(reading.op)
    owner = reading.op.operands[2].owner
    if getattr(owner, "name", "") == "stablehlo.constant":
        pairs = np.asarray(owner.attributes["value"]).reshape(-1, 2)
        padding = tuple((int(low), int(high)) for low, high in pairs)
    else:
        padding = _implied_padding(place, lhs, kernel, out)
    precision = attributes.precision(reading.op)
    return convolution_cost(reading, convolution_geometry(replace(place, padding=padding), lhs, kernel, out, precision))


def _placement(op: Any) -> ConvolutionDims:
    """What the op's attributes say; `dynamic_conv` has no padding among them."""
    dims = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    rank = len(dims.input_spatial_dimensions)
    ones = (1,) * rank
    return ConvolutionDims(
        lhs=(dims.input_batch_dimension, dims.input_feature_dimension, *dims.input_spatial_dimensions),
        kernel=(
            dims.kernel_input_feature_dimension,
            dims.kernel_output_feature_dimension,
            *dims.kernel_spatial_dimensions,
        ),
        out=(dims.output_batch_dimension, dims.output_feature_dimension, *dims.output_spatial_dimensions),
        strides=attributes.integers(op, "window_strides", ones),
        padding=attributes.padding(op, rank),
        lhs_dilation=attributes.integers(op, "lhs_dilation", ones),
        rhs_dilation=attributes.integers(op, "rhs_dilation", ones),
    )


def _implied_padding(place: ConvolutionDims, lhs: Tensor, kernel: Tensor, out: Tensor) -> tuple[tuple[int, int], ...]:
    """The total padding that gives the output's size, the odd one on the high side as in SAME convolutions."""
    pairs = []
    for d, stride in enumerate(place.strides):
        window = (kernel.shape[place.kernel[d + 2]] - 1) * place.rhs_dilation[d] + 1
        size = (lhs.shape[place.lhs[d + 2]] - 1) * place.lhs_dilation[d] + 1
        total = (out.shape[place.out[d + 2]] - 1) * stride + window - size
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)


def _labels(dims: tuple[int, ...], names: str) -> str:
    """One tensor's dimension letters in memory order: two names, then digits for the spatial dimensions."""
    letters = [*names, *map(str, range(len(dims) - 2))]
    return "".join(letter for _, letter in sorted(zip(dims, letters, strict=True)))


RULES: Mapping[str, Rule] = {"stablehlo.convolution": _convolution, "stablehlo.dynamic_conv": _dynamic_conv}
