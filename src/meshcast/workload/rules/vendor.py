"""Library kernels of compiled programs: cuBLAS products and cuDNN convolutions, back to the geometry they compute."""

from __future__ import annotations

import re
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.workload.graph import Cost, Tensor
from meshcast.workload.rule import OpReading
from meshcast.workload.rules.attributes import text
from meshcast.workload.rules.backend_config import backend_config, dimensions
from meshcast.workload.rules.convolution import (
    ConvolutionDims,
    convolution_cost,
    convolution_geometry,
    filter_gradient,
    input_gradient,
)
from meshcast.workload.rules.gemm import contraction, gemm_cost, minor_dims
from meshcast.workload.rules.sorting import sort_along


def without_workspace(results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The results less the scratch buffer a library call returns last: a vector of bytes."""
    *kept, last = results or (Tensor((), "token"),)
    scratch = len(last.shape) == 1 and last.dtype in ("i8", "ui8") and bool(kept)
    return tuple(kept) if scratch else results


def cublas_gemm(reading: OpReading) -> Cost:
    """`__cublas$gemm` and `__cublas$lt$matmul`: operands 0 and 1 by the dot dimensions in the configuration."""
    config = backend_config(reading.op).get("gemm_backend_config")
    if not config:
        raise _unreadable(reading, "its configuration names no dot dimensions")
    dims = config.get("dot_dimension_numbers", {})
    lhs, rhs = reading.operands[:2]
    gemm = contraction(
        lhs,
        rhs,
        reading.results[0],
        batch=dimensions(dims, "lhs_batch_dimensions"),
        rhs_batch=dimensions(dims, "rhs_batch_dimensions"),
        lhs_contracting=dimensions(dims, "lhs_contracting_dimensions"),
        rhs_contracting=dimensions(dims, "rhs_contracting_dimensions"),
        precision=_precision(config.get("precision_config", {})),
        minor=minor_dims(reading.op),
    )
    return gemm_cost(_trimmed(reading), gemm)


def radix_sort(reading: OpReading) -> Cost:
    """`__cub$DeviceRadixSort*`: rows along the innermost dimension."""
    return sort_along(_trimmed(reading), radix=True)


def cudnn_convolution(reading: OpReading) -> Cost:
    """`__cudnn$conv*`: window and labels are always those of the forward convolution, whichever tensor is computed.

    The geometry is that of the convolution which computes the gradient, as a program before optimisation spells it.
    """
    labels, window = text(reading.op, "meshcast.dim_labels"), text(reading.op, "meshcast.window")
    if not labels:
        raise _unreadable(reading, "the window and dimension labels of the convolution are missing")
    target = text(reading.op, "call_target_name")
    first, second = reading.operands[:2]
    made = reading.results[0]
    if "BackwardInput" in target:
        lhs, kernel, out = made, second, first
    elif "BackwardFilter" in target:
        lhs, kernel, out = first, made, second
    else:
        lhs, kernel, out = first, second, made
    geometry = convolution_geometry(_placement(labels, window), lhs, kernel, out)
    if "BackwardInput" in target:
        geometry = input_gradient(geometry)
    elif "BackwardFilter" in target:
        geometry = filter_gradient(geometry)
    return convolution_cost(_trimmed(reading), geometry)


def _placement(labels: str, window: str) -> ConvolutionDims:
    """HLO's own spelling: labels `b01f_o01i->b01f`, window `{size=3x3 stride=2x2 pad=1_1x1_1 rhs_dilate=2x2}`."""
    inputs, _, out = labels.partition("->")
    lhs, _, kernel = inputs.partition("_")
    rank = len(lhs) - 2
    fields = dict(re.findall(r"(\w+)=(\S+)", window.strip("{}")))

    def per_dim(name: str) -> tuple[int, ...]:
        return tuple(map(int, fields[name].split("x"))) if name in fields else (1,) * rank

    pads = fields.get("pad", "x".join(["0_0"] * rank)).split("x")
    return ConvolutionDims(
        lhs=_positions(lhs, "bf"),
        kernel=_positions(kernel, "io"),
        out=_positions(out, "bf"),
        strides=per_dim("stride"),
        padding=tuple((int(low), int(high)) for low, high in (pad.split("_") for pad in pads)) if rank else (),
        lhs_dilation=per_dim("lhs_dilate"),
        rhs_dilation=per_dim("rhs_dilate"),
    )


def _positions(labels: str, names: str) -> tuple[int, ...]:
    """Where the two named dimensions and then the spatial ones are."""
    spatial = sorted((label, dim) for dim, label in enumerate(labels) if label.isdigit())
    return (labels.index(names[0]), labels.index(names[1]), *(dim for _, dim in spatial))


def _precision(config: dict[str, Any]) -> str:
    """The algorithm's name (`ALG_DOT_TF32_TF32_F32`), else the highest operand precision."""
    algorithm = str(config.get("algorithm", "")).removeprefix("ALG_DOT_")
    if algorithm and algorithm != "ALG_UNSET":
        return algorithm
    asked = config.get("operand_precision", [])
    return next((name for name in ("HIGHEST", "HIGH") if name in asked), "DEFAULT")


def _trimmed(reading: OpReading) -> OpReading:
    """A copy of the call's reading without its workspace."""
    return OpReading(
        name=reading.name,
        operands=reading.operands,
        results=without_workspace(reading.results),
        op=reading.op,
        location=reading.location,
    )


def _unreadable(reading: OpReading, why: str) -> UnsupportedError:
    """A library call whose geometry is not in the program."""
    return UnsupportedError(
        f"custom call {text(reading.op, 'call_target_name')!r}: {why}",
        where=reading.location or None,
        fix="give meshcast the program before optimisation, or declare the cost in a `meshcast.cost` attribute",
    )
