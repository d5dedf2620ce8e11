"""Dense solver calls of LAPACK, cuSOLVER, hipSOLVER and cuBLAS, and of XLA on TPUs, by the operation counts of the textbook.

Counts are Golub & Van Loan's (Matrix Computations, 4th ed.) for an m x n matrix, per matrix of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from meshcast.base import UnsupportedError
from meshcast.workload.graph import Cost, OpKind, Routine
from meshcast.workload.rule import OpReading, Rule
from meshcast.workload.rules.costs import streamed
from meshcast.workload.rules.linalg import cholesky, factorisation, real_factor, triangular_solve

_Count = Callable[[float, float], float]

SOLVER_COUNTS: Mapping[Routine, _Count] = {
    "cholesky": lambda m, n: n**3 / 3,
    "lu": lambda m, n: max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 / 3,  # 2/3 n^3 when square
    "qr": lambda m, n: 2 * max(m, n) * min(m, n) ** 2 - 2 * min(m, n) ** 3 / 3,  # Householder
    "q": lambda m, n: 2 * max(m, n) * min(m, n) ** 2 - 2 * min(m, n) ** 3 / 3,  # forming Q
    "svd": lambda m, n: 6 * max(m, n) * min(m, n) ** 2 + 20 * min(m, n) ** 3,  # thin, with both factors
    "svd-qr": lambda m, n: 6 * max(m, n) * min(m, n) ** 2 + 20 * min(m, n) ** 3,
    "eigh": lambda m, n: 9 * n**3,  # symmetric: eigenvalues and vectors
    "eig": lambda m, n: 25 * n**3,  # general: eigenvalues and vectors
}
# Parts of the libraries' names, first match first.
_LIBRARY: Mapping[str, Routine] = {
    "getrf": "lu",
    "geqrf": "qr",
    "gqr": "q",  # orgqr, ungqr
    "gesvdj": "svd",
    "gesdd": "svd-qr",
    "gesvd": "svd-qr",
    "evd": "eigh",  # syevd, heevd
    "evj": "eigh",
    "trd": "eigh",  # sytrd, hetrd: the tridiagonal reduction is most of it
    "geev": "eig",
    "gehrd": "eig",  # the Hessenberg form is where it starts
    "gees": "eig",  # Schur's form
}
_XLA: Mapping[str, Routine] = {
    "LuDecomposition": "lu",
    "Qr": "qr",
    "ProductOfElementaryHouseholderReflectors": "q",
    "Eigh": "eigh",
}


def _solver(routine: Routine) -> Rule:
    """The rule of one factorisation, from its FLOPs for a real m x n matrix."""

    def rule(reading: OpReading) -> Cost:
        matrix = reading.operands[0] if reading.operands else None
        if matrix is None or len(matrix.shape) < 2:
            raise UnsupportedError(
                f"a solver's call ({routine}) needs a matrix, not {matrix or 'nothing'}",
                where=reading.location or None,
                fix="declare its cost in a `meshcast.cost` attribute",
            )
        rows, columns = matrix.shape[-2:]
        flops = SOLVER_COUNTS[routine](rows, columns) * math.prod(matrix.shape[:-2]) * real_factor(matrix.dtype)
        return streamed(reading, OpKind.LINALG, vector_flops=flops, geometry=factorisation(routine, matrix))

    return rule


def _reflections(reading: OpReading) -> Cost:
    """Q of a factorisation applied to a matrix without forming it: `4 m p k - 2 p k^2` FLOPs for k reflections of p columns.

    Its steps are those of forming Q, column by column. Operands are the reflections (m x k), their factors, the matrix (m x p).
    """
    if len(reading.operands) < 3 or any(len(reading.operands[place].shape) < 2 for place in (0, 2)):
        raise UnsupportedError(
            "a call that applies reflections needs them, their factors and a matrix",
            where=reading.location or None,
            fix="declare its cost in a `meshcast.cost` attribute",
        )
    reflections, _, target = reading.operands[:3]
    rows, count = max(reflections.shape[-2:]), min(reflections.shape[-2:])
    columns = math.prod(target.shape) // max(1, rows * math.prod(reflections.shape[:-2]))
    each = 4 * rows * columns * count - 2 * columns * count**2
    flops = each * math.prod(reflections.shape[:-2]) * real_factor(reflections.dtype)
    return streamed(reading, OpKind.LINALG, vector_flops=flops, geometry=factorisation("q", reflections))


def _pivots(reading: OpReading) -> Cost:
    """Pivots of an LU factorisation as a permutation: integers, read and written."""
    return streamed(reading, OpKind.ELEMENTWISE)


def _tridiagonal(reading: OpReading) -> Cost:
    """Systems of three diagonals of n elements each, with r right-hand sides: `3 n + 5 n r` FLOPs, every array once.

    Golub & Van Loan, section 4.3.6 (LU without pivots and its two substitutions). Libraries on GPUs reduce them in parallel
    (cuSPARSE's gtsv2), in few passes over what fits into shared memory: nothing of that is measured here.
    """
    if len(reading.operands) < 4 or not all(each.shape for each in reading.operands[:4]):
        raise UnsupportedError(
            "a call that solves tridiagonal systems needs three diagonals and right-hand sides",
            where=reading.location or None,
            fix="declare its cost in a `meshcast.cost` attribute",
        )
    diagonal, right = reading.operands[1], reading.operands[3]
    flops = (3 * diagonal.elements + 5 * right.elements) * real_factor(diagonal.dtype)
    return streamed(reading, OpKind.CUSTOM, dtype=diagonal.dtype, vector_flops=flops)


def _patterns(routine: str) -> tuple[str, ...]:
    """`lapack_sgetrf_ffi`, `cusolver_getrf_ffi`, `hipsolver_getrf_ffi` and their older spellings."""
    return f"lapack_*{routine}*", f"cusolver_*{routine}*", f"hipsolver_*{routine}*"


SOLVERS: Mapping[str, Rule] = {
    **{pattern: cholesky for pattern in _patterns("potrf")},
    **{pattern: triangular_solve for pattern in (*_patterns("trsm"), "blas_*trsm*", "cublas_*trsm*")},
    "__cublas$triangularSolve": triangular_solve,
    "__cusolver$cholesky": cholesky,
    **{pattern: _reflections for pattern in _patterns("mqr")},  # ormqr, unmqr
    **{pattern: _tridiagonal for pattern in ("lapack_*gtsv*", "cusparse_gtsv*", "hipsparse_gtsv*")},
    **{pattern: _solver(routine) for name, routine in _LIBRARY.items() for pattern in _patterns(name)},
    **{name: _solver(routine) for name, routine in _XLA.items()},
    **{f"{vendor}hybrid_eig*": _solver("eig") for vendor in ("cu", "hip")},
    **{f"{vendor}_lu_pivots_to_permutation*": _pivots for vendor in ("cu", "hip")},
}
