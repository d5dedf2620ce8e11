"""Lineax: linear systems by every kind of solver."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

LINEAX = Catalogue("lineax", "library", "science")
CATALOGUES = [LINEAX]


def solved(solver: Any, *sizes: int, positive: bool = False) -> Call:
    """A dense system, batched over the first of the sizes."""

    def one(matrix: Any, vector: Any) -> Any:
        if positive:
            matrix = matrix @ matrix.T + jnp.eye(matrix.shape[0])
        tags = lx.positive_semidefinite_tag if positive else ()
        return lx.linear_solve(lx.MatrixLinearOperator(matrix, tags), vector, solver, throw=False).value

    return jax.vmap(one), (spec(*sizes), spec(*sizes[:2]))


LINEAX.add("lineax_lu_batched", partial(solved, lx.LU(), 64, 256, 256), "infer")
LINEAX.add("lineax_cholesky_batched", partial(solved, lx.Cholesky(), 128, 128, 128, positive=True), "infer")
LINEAX.add("lineax_qr_least_squares", partial(solved, lx.QR(), 64, 256, 64), "infer")
LINEAX.add(
    "lineax_cg_dense",
    partial(solved, lx.CG(1e-6, 1e-6, max_steps=32), 32, 512, 512, positive=True),
    "step",
)
LINEAX.add(
    "lineax_bicgstab_batched",
    partial(solved, lx.BiCGStab(1e-6, 1e-6, max_steps=24), 32, 256, 256),
    "step",
)


@LINEAX.program("lineax_gmres_jacobian", "step")
def _() -> Call:
    def newton(x: Any, b: Any) -> Any:
        operator = lx.JacobianLinearOperator(lambda y, _: jnp.tanh(y) + 0.1 * jnp.roll(y, 1) + 2 * y, x)
        return lx.linear_solve(operator, b, lx.GMRES(1e-5, 1e-5, max_steps=40, restart=10), throw=False).value

    return newton, (spec(1048576), spec(1048576))


@LINEAX.program("lineax_tridiagonal_batched", "infer")
def _() -> Call:
    def one(diagonal: Any, lower: Any, upper: Any, b: Any) -> Any:
        return lx.linear_solve(lx.TridiagonalLinearOperator(diagonal, lower, upper), b, lx.Tridiagonal()).value

    return jax.vmap(one), (spec(4096, 256), spec(4096, 255), spec(4096, 255), spec(4096, 256))


@LINEAX.program("lineax_solve_gradient", "train")
def _() -> Call:
    def loss(matrix: Any, b: Any) -> Any:
        return jnp.square(
            lx.linear_solve(lx.MatrixLinearOperator(matrix), b, lx.AutoLinearSolver(well_posed=True)).value
        ).sum()

    return jax.value_and_grad(loss), (spec(1024, 1024), spec(1024))
