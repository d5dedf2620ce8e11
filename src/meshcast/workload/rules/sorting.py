"""Sorts and top-k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshcast.workload.graph import Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import flag, integer
from meshcast.workload.rules.costs import streamed
from meshcast.workload.shapes import SortGeometry


def _sort(reading: OpReading) -> Cost:
    """E ceil(log2 E) comparisons over the E elements of operand 0.

    XLA's count, kept: it takes the logarithm of all elements and not of one row, and a comparison is one FLOP whatever
    the comparator. `geometry` has the length and the number of rows for models that need them.
    """
    return sort_along(reading, integer(reading.op, "dimension", -1))


def sort_along(reading: OpReading, dimension: int = -1, *, radix: bool | None = None) -> Cost:
    """A sort of all operands together, rows along `dimension`; `radix` where it is known how."""
    operand = reading.operands[0]
    length = operand.shape[dimension] if operand.shape else 1
    geometry = SortGeometry(
        length=length,
        batch=operand.elements // max(1, length),
        operands=len(reading.operands),
        minor=dimension in (-1, len(operand.shape) - 1),
        radix=radix,
        stable=flag(reading.op, "is_stable") and not any(map(_is_places, reading.op.operands)),
    )
    return streamed(
        reading,
        OpKind.SORT,
        vector_flops=operand.elements * _ceil_log2(operand.elements),
        geometry=geometry,
    )


def _is_places(value: Any) -> bool:
    """Whether a value numbers elements."""
    return getattr(value.owner, "name", "") == "stablehlo.iota"


def top_k(reading: OpReading) -> Cost:
    """E ceil(log2 2k) comparisons: every element against a heap of the k best (XLA counts none).

    k is the result's last dimension, so the same rule serves `chlo.top_k`, its composite and its custom calls.
    """
    operand = reading.operands[0]
    length, top = operand.shape[-1], reading.results[0].shape[-1]
    return streamed(
        reading,
        OpKind.SORT,
        vector_flops=operand.elements * _ceil_log2(2 * top),
        geometry=SortGeometry(length=length, batch=operand.elements // max(1, length), operands=1, top=top),
    )


def _ceil_log2(number: int) -> int:
    """The least n with 2**n >= number."""
    return max(0, number - 1).bit_length()


RULES: Mapping[str, Rule] = {"stablehlo.sort": _sort, "chlo.top_k": top_k}
