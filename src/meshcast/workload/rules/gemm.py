"""Matrix products: dot, dot_general and einsum, all as one batched GEMM.

FLOPs = 2 B M N K (8 B M N K for complex operands: four real multiply-adds per complex one; XLA counts 2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from meshcast.base import UnsupportedError
from meshcast.workload.graph import DTYPE_BITS, Cost, Gemm, OpKind, Reduction, Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import precision, text
from meshcast.workload.rules.costs import is_complex, streamed


def contraction(
    lhs: Tensor,
    rhs: Tensor,
    out: Tensor,
    *,
    batch: Sequence[int],
    lhs_contracting: Sequence[int],
    rhs_contracting: Sequence[int],
    rhs_batch: Sequence[int],
    precision: str = "DEFAULT",
    rhs_group: Sequence[int] = (),
    minor: tuple[int, int] | None = None,
) -> Gemm:
    """The GEMM of a dot over local shapes: M and N are the free dimensions' products.

    `minor` gives the operands' innermost dimensions where they are not row-major.
    """
    lhs_minor, rhs_minor = minor or (len(lhs.shape) - 1, len(rhs.shape) - 1)
    m = _product(lhs.shape, _others(lhs, *batch, *lhs_contracting))
    n = _product(rhs.shape, _others(rhs, *rhs_batch, *rhs_contracting, *rhs_group))
    return Gemm(
        batch=_product(lhs.shape, batch),
        m=m,
        n=n,
        k=_product(lhs.shape, lhs_contracting),
        lhs_dtype=lhs.dtype,
        rhs_dtype=rhs.dtype,
        out_dtype=out.dtype,
        lhs_contracting_minor=lhs_minor in lhs_contracting,
        rhs_contracting_minor=rhs_minor in rhs_contracting,
        precision=precision,
    )


def gemm_cost(reading: OpReading, gemm: Gemm) -> Cost:
    """The cost of `gemm` as this op runs it."""
    return streamed(
        reading,
        OpKind.GEMM,
        dtype=wider(gemm.lhs_dtype, gemm.rhs_dtype),
        matrix_flops=flops_per_mac(gemm.lhs_dtype) * gemm.batch * gemm.m * gemm.n * gemm.k,
        geometry=gemm,
    )


def wider(first: str, second: str) -> str:
    """The element type with more bits; the first one of a tie."""
    return second if DTYPE_BITS[second] > DTYPE_BITS[first] else first


def flops_per_mac(dtype: str) -> int:
    """Real FLOPs of one multiply-add."""
    return 8 if is_complex(dtype) else 2


def minor_dims(op: Any) -> tuple[int, int] | None:
    """The two operands' innermost dimensions as a compiled program laid them out; nothing where all are row-major."""
    layouts = text(op, "meshcast.layouts")  # "{1,0},{0,1}->{1,0}", innermost first, noted by programs.hlo_text
    found = [int(group.split(",")[0]) for group in re.findall(r"\{([\d,]+)\}", layouts.partition("->")[0])]
    return (found[0], found[1]) if len(found) >= 2 else None


def _dot_general(reading: OpReading) -> Cost:
    """Any batching and contracting dimensions."""
    lhs, rhs = reading.operands[:2]
    dims = stablehlo.DotDimensionNumbers(reading.op.attributes["dot_dimension_numbers"])
    batch, rhs_batch = dims.lhs_batching_dimensions, dims.rhs_batching_dimensions
    lhs_contracting, rhs_contracting = dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions
    gemm = contraction(
        lhs,
        rhs,
        reading.results[0],
        batch=batch,
        rhs_batch=rhs_batch,
        lhs_contracting=lhs_contracting,
        rhs_contracting=rhs_contracting,
        precision=precision(reading.op),
        minor=minor_dims(reading.op),
    )
    cost = gemm_cost(reading, gemm)
    if text(reading.op, "meshcast.layouts"):
        return cost
    rows = _others(lhs, *batch, *lhs_contracting)
    columns = _others(rhs, *rhs_batch, *rhs_contracting)
    parts = (
        (tuple(batch), tuple(rows), tuple(lhs_contracting)),
        (tuple(rhs_batch), tuple(columns), tuple(rhs_contracting)),
    )
    cost = replace(cost, parts=parts)
    if not batch:
        return cost
    orders = (
        needed_order(lhs, batch, rows, lhs_contracting),
        needed_order(rhs, rhs_batch, rhs_contracting, columns),
    )
    return replace(cost, orders=orders) if any(orders) else cost


def needed_order(operand: Tensor, batch: Sequence[int], rows: Iterable[int], columns: Iterable[int]) -> tuple[int, ...]:
    """(batch, rows, columns) where a library cannot take the operand as it is written; else nothing.

    It takes each of the three that lies together, the batch outermost or in the middle: one stride steps through each.
    """
    order = (*batch, *rows, *columns)
    part = {dim: 0 for dim in batch} | {dim: 1 for dim in rows} | {dim: 2 for dim in columns}
    runs = [key for key, _ in groupby(part[dim] for dim in sorted(order) if operand.shape[dim] > 1)]
    strided = len(runs) == len(set(runs)) and (len(runs) < 2 or runs[-1] != 0)
    return () if strided else order


def _dot(reading: OpReading) -> Cost:
    """Vectors and matrices only: lhs's last dimension against rhs's first."""
    lhs, rhs = reading.operands
    gemm = contraction(
        lhs,
        rhs,
        reading.results[0],
        batch=(),
        rhs_batch=(),
        lhs_contracting=(len(lhs.shape) - 1,),
        rhs_contracting=(0,),
        precision=precision(reading.op),
    )
    return gemm_cost(reading, gemm)


def _einsum(reading: OpReading) -> Cost:
    """A two-operand einsum; an index of one operand alone that the result drops counts as contracted."""
    left, right, out = _einsum_indices(reading)
    lhs, rhs = reading.operands
    shared = [index for index in left if index in right]
    gemm = contraction(
        lhs,
        rhs,
        reading.results[0],
        batch=[left.index(index) for index in shared if index in out],
        rhs_batch=[right.index(index) for index in shared if index in out],
        lhs_contracting=[position for position, index in enumerate(left) if index not in out],
        rhs_contracting=[position for position, index in enumerate(right) if index not in out],
        precision=precision(reading.op),
    )
    return gemm_cost(reading, gemm)


def _unary_einsum(reading: OpReading) -> Cost:
    """A sum over the indices the result drops, and a transpose where none is."""
    indices, out = _einsum_indices(reading)
    operand, result = reading.operands[0], reading.results[0]
    dims = tuple(position for position, index in enumerate(indices) if index not in out)
    if not dims:
        return streamed(reading, OpKind.TRANSPOSE)
    return streamed(
        reading,
        OpKind.REDUCE,
        vector_flops=max(0, operand.elements - result.elements),
        geometry=Reduction(shape=operand.shape, dims=dims),
    )


def _einsum_indices(reading: OpReading) -> list[str]:
    """The index letters of each operand and of the result."""
    config = text(reading.op, "einsum_config")
    inputs, arrow, out = config.replace(" ", "").partition("->")
    if not arrow or "." in config:
        raise UnsupportedError(
            f"{reading.name} with config {config!r}: every index must be a letter and the result must be written out",
            where=reading.location or None,
            fix="lower the einsum to stablehlo.dot_general",
        )
    return [*inputs.split(","), out]


def _others(tensor: Tensor, *taken: int) -> Iterable[int]:
    """The dimensions of `tensor` that are not `taken`."""
    return [dim for dim in range(len(tensor.shape)) if dim not in taken]


def _product(shape: tuple[int, ...], dims: Iterable[int]) -> int:
    """The product of the sizes of `dims`."""
    return math.prod(shape[dim] for dim in dims)


RULES: Mapping[str, Rule] = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.einsum": _einsum,
    "stablehlo.unary_einsum": _unary_einsum,
}
