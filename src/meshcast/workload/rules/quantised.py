"""Quantisation; a quantised tensor is given by its storage type (`i8` for `!quant.uniform<i8:f32, ...>`)."""

from __future__ import annotations

from collections.abc import Mapping

from meshcast.workload.graph import Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.costs import streamed

_QUANTIZE = 5  # divide by the scale, round, add the zero point, clamp, convert
_DEQUANTIZE = 3  # convert, subtract the zero point, multiply by the scale


def _uniform_quantize(reading: OpReading) -> Cost:
    """Work at the expressed (float) type of the operand."""
    return streamed(reading, OpKind.ELEMENTWISE, vector_flops=_QUANTIZE * reading.results[0].elements)


def _uniform_dequantize(reading: OpReading) -> Cost:
    """Work at the expressed (float) type of the result."""
    result = reading.results[0]
    return streamed(reading, OpKind.ELEMENTWISE, dtype=result.dtype, vector_flops=_DEQUANTIZE * result.elements)


RULES: Mapping[str, Rule] = {
    "stablehlo.uniform_quantize": _uniform_quantize,
    "stablehlo.uniform_dequantize": _uniform_dequantize,
}
