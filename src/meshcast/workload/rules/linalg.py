"""Cholesky factorisations, triangular solves and Fourier transforms, counted on the vector units.

They run in steps too small or too serial for the matrix engine's peak to say anything about them. Solvers carry their geometry:
how many steps follow each other decides their time (`estimate/gpu/solvers.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from meshcast.workload.graph import Cost, Factorisation, OpKind, Routine, Tensor
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.attributes import integers
from meshcast.workload.rules.costs import is_complex, streamed
from meshcast.workload.shapes import Transform, TransformKind


def cholesky(reading: OpReading) -> Cost:
    """n^3 / 3 per matrix, as XLA; half of the operand is read and half of the result written."""
    matrix = reading.operands[0]
    flops = matrix.elements * matrix.shape[-1] // 3 * real_factor(matrix.dtype)
    return Cost(
        kind=OpKind.LINALG,
        dtype=matrix.dtype,
        vector_flops=float(flops),
        operand_bytes=(matrix.bytes // 2,),
        written_bytes=reading.results[0].bytes // 2,
        geometry=factorisation("cholesky", matrix),
    )


def triangular_solve(reading: OpReading) -> Cost:
    """2 n per element of the right-hand side, as XLA (the triangle halves that; XLA does not); half of A is read."""
    matrix, rhs = reading.operands[:2]
    return Cost(
        kind=OpKind.LINALG,
        dtype=rhs.dtype,
        vector_flops=2.0 * matrix.shape[-1] * rhs.elements * real_factor(matrix.dtype),
        operand_bytes=(matrix.bytes // 2, *(tensor.bytes for tensor in reading.operands[1:])),
        written_bytes=sum(tensor.bytes for tensor in reading.results),
        geometry=factorisation("triangular", matrix, right=rhs.elements * matrix.shape[-1] // max(1, matrix.elements)),
    )


def factorisation(routine: Routine, matrix: Tensor, right: int = 0) -> Factorisation:
    """The geometry of a solver that takes `matrix`, leading dimensions being its batch."""
    rows, columns = matrix.shape[-2:]
    return Factorisation(routine=routine, batch=math.prod(matrix.shape[:-2]), rows=rows, columns=columns, right=right)


def _fft(reading: OpReading) -> Cost:
    """8 E floor(log2 N) for a transform of length N over E input elements: XLA's count of a radix-2 transform.

    The textbook's 5 N log2 N is the same algorithm with the additions shared. Over several dimensions the logarithms
    add up (XLA multiplies them).
    """
    operand = reading.operands[0]
    lengths = tuple(integers(reading.op, "fft_length"))
    stages = sum(max(0, length.bit_length() - 1) for length in lengths)
    kind = transform_kind(reading)
    real = reading.results[0] if kind == "IRFFT" else operand
    geometry = Transform(kind=kind, lengths=lengths, batch=real.elements // max(1, math.prod(lengths)))
    return streamed(reading, OpKind.FFT, vector_flops=8 * stages * operand.elements, geometry=geometry)


def transform_kind(reading: OpReading) -> TransformKind:
    """Which transform it is: by its types, and by its attribute where both sides are complex."""
    if not is_complex(reading.operands[0].dtype):
        return "RFFT"
    if not is_complex(reading.results[0].dtype):
        return "IRFFT"
    return "IFFT" if "IFFT" in str(reading.op.attributes["fft_type"]) else "FFT"


def real_factor(dtype: str) -> int:
    """Real multiply-adds per multiply-add of `dtype`."""
    return 4 if is_complex(dtype) else 1


RULES: Mapping[str, Rule] = {
    "stablehlo.cholesky": cholesky,
    "stablehlo.triangular_solve": triangular_solve,
    "stablehlo.fft": _fft,
}
