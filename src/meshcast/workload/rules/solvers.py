"""Dense solver calls of LAPACK, cuSOLVER, hipSOLVER and cuBLAS, by the operation counts of the textbook.

Counts are Golub & Van Loan's (Matrix Computations, 4th ed.) for an m x n matrix, per matrix of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from meshcast.workload.graph import Cost, OpKind
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.costs import streamed
from meshcast.workload.rules.linalg import cholesky, real_factor, triangular_solve

_Count = Callable[[float, float], float]

_COUNTS: Mapping[str, _Count] = {
    "getrf": lambda m, n: max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 / 3,  # LU; 2/3 n^3 when square
    "geqrf": lambda m, n: 2 * max(m, n) * min(m, n) ** 2 - 2 * min(m, n) ** 3 / 3,  # Householder QR
    "gqr": lambda m, n: 2 * max(m, n) * min(m, n) ** 2 - 2 * min(m, n) ** 3 / 3,  # forming Q: orgqr, ungqr
    "evd": lambda m, n: 9 * n**3,  # symmetric eigenvalues and vectors: syevd, heevd
    "gesdd": lambda m, n: 6 * max(m, n) * min(m, n) ** 2 + 20 * min(m, n) ** 3,  # thin SVD with both factors
    "gesvd": lambda m, n: 6 * max(m, n) * min(m, n) ** 2 + 20 * min(m, n) ** 3,
    "trd": lambda m, n: 4 * n**3 / 3,  # tridiagonal reduction: sytrd, hetrd
}


def _solver(count: _Count) -> Rule:
    """The rule of one factorisation, from its FLOPs for a real m x n matrix."""

    def rule(reading: OpReading) -> Cost:
        matrix = reading.operands[0]
        rows, columns = matrix.shape[-2:]
        flops = count(rows, columns) * math.prod(matrix.shape[:-2]) * real_factor(matrix.dtype)
        return streamed(reading, OpKind.LINALG, vector_flops=flops)

    return rule


def _patterns(routine: str) -> tuple[str, ...]:
    """`lapack_sgetrf_ffi`, `cusolver_getrf_ffi`, `hipsolver_getrf_ffi` and their older spellings."""
    return f"lapack_*{routine}*", f"cusolver_*{routine}*", f"hipsolver_*{routine}*"


SOLVERS: Mapping[str, Rule] = {
    **{pattern: cholesky for pattern in _patterns("potrf")},
    **{pattern: triangular_solve for pattern in (*_patterns("trsm"), "blas_*trsm*", "cublas_*trsm*")},
    "__cublas$triangularSolve": triangular_solve,
    "__cusolver$cholesky": cholesky,
    **{pattern: _solver(count) for routine, count in _COUNTS.items() for pattern in _patterns(routine)},
}
