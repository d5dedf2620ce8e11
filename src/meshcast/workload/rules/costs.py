"""Costs that several topics share: nothing at all, and reading every operand to write every result."""

from __future__ import annotations

from typing import Any

from meshcast.workload.graph import Cost, Geometry, OpKind, Tensor
from meshcast.workload.rule import OpReading


def view(reading: OpReading) -> Cost:
    """No work: the op renames, reinterprets or orders values without touching a byte."""
    return Cost(
        kind=OpKind.VIEW,
        dtype=reading.results[0].dtype if reading.results else "",
        operand_bytes=(0,) * len(reading.operands),
    )


def takes_whole(op: Any) -> bool:
    """Whether a slice takes all of its operand, or a pad gives nothing else."""
    return bool(op.operands[0].type == op.results[0].type)


def generated(reading: OpReading) -> Cost:
    """No work either: a constant, resident in memory or folded into its reader."""
    return Cost(kind=OpKind.GENERATE, dtype=reading.results[0].dtype, operand_bytes=(0,) * len(reading.operands))


def streamed(
    reading: OpReading,
    kind: OpKind,
    *,
    dtype: str | None = None,
    matrix_flops: float = 0.0,
    vector_flops: float = 0.0,
    transcendentals: float = 0.0,
    geometry: Geometry | None = None,
) -> Cost:
    """Every operand read once, every result written once; `dtype` is the first operand's unless given."""
    if dtype is None:
        dtype = (reading.operands or reading.results)[0].dtype
    return Cost(
        kind=kind,
        dtype=dtype,
        matrix_flops=float(matrix_flops),
        vector_flops=float(vector_flops),
        transcendentals=float(transcendentals),
        operand_bytes=tuple(tensor.bytes for tensor in reading.operands),
        written_bytes=total_bytes(reading.results),
        geometry=geometry,
    )


def total_bytes(tensors: tuple[Tensor, ...]) -> int:
    """Bytes of all `tensors` together."""
    return sum(tensor.bytes for tensor in tensors)


def is_complex(dtype: str) -> bool:
    """True for complex element types."""
    return dtype.startswith("complex")
