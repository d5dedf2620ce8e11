"""JAXopt: minimisers, projections, quadratic programs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxopt
import optax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

JAXOPT = Catalogue("jaxopt", "library", "optimizer")
CATALOGUES = [JAXOPT]


def logistic(w: Any, x: Any, y: Any) -> Any:
    """The regularised loss of a linear classifier."""
    return optax.softmax_cross_entropy_with_integer_labels(x @ w, y).mean() + 1e-4 * jnp.sum(w**2)


DATA = (spec(256, 32), spec(16384, 256), integers(32, 16384))
for name, solver in (
    ("lbfgs", jaxopt.LBFGS(logistic, maxiter=10, linesearch="backtracking", jit=True, unroll=False)),
    ("gradient_descent", jaxopt.GradientDescent(logistic, maxiter=10, acceleration=True)),
    ("nonlinear_cg", jaxopt.NonlinearCG(logistic, maxiter=10)),
):
    JAXOPT.add(
        f"jaxopt_{name}_logistic",
        partial(lambda run: ((lambda *given: run(*given).params), DATA), solver.run),
        "train",
    )


@JAXOPT.program("jaxopt_proximal_lasso", "train")
def _() -> Call:
    solver = jaxopt.ProximalGradient(jaxopt.objective.least_squares, jaxopt.prox.prox_lasso, maxiter=20)
    return (lambda w, scale, x, y: solver.run(w, scale, (x, y)).params), (
        spec(1024),
        spec(),
        spec(8192, 1024),
        spec(8192),
    )


@JAXOPT.program("jaxopt_projected_simplex", "step")
def _() -> Call:
    def loss(p: Any, cost: Any) -> Any:
        return jnp.sum(p * cost) + 0.1 * jnp.sum(p**2)

    project = lambda x, _=None: jax.vmap(jaxopt.projection.projection_simplex)(x)  # noqa: E731
    solver = jaxopt.ProjectedGradient(loss, project, maxiter=10)
    return (lambda p, cost: solver.run(p, None, cost).params), (spec(4096, 128), spec(4096, 128))


@JAXOPT.program("jaxopt_anderson_fixed_point", "step")
def _() -> Call:
    solver = jaxopt.AndersonAcceleration(lambda z, w, x: jnp.tanh(0.1 * z @ w + x), history_size=5, maxiter=20)
    return (lambda z, w, x: solver.run(z, w, x).params), (spec(512, 512), spec(512, 512), spec(512, 512))


@JAXOPT.program("jaxopt_osqp_portfolios", "step")
def _() -> Call:
    solver = jaxopt.BoxOSQP(maxiter=50, check_primal_dual_infeasability=False)

    def one(factors: Any, returns: Any) -> Any:
        q = factors @ factors.T + jnp.eye(factors.shape[0])
        limits = jnp.zeros(factors.shape[0]), jnp.ones(factors.shape[0])
        return solver.run(
            params_obj=(q, returns), params_eq=jnp.eye(factors.shape[0]), params_ineq=limits
        ).params.primal[0]

    return one, (spec(256, 32), spec(256))


@JAXOPT.program("jaxopt_loss_projections", "infer", origin="helper")
def _() -> Call:
    def projected(x: Any, labels: Any) -> Any:
        ball = jax.vmap(lambda row: jaxopt.projection.projection_l1_ball(row, 1.0))(x)
        losses = jax.vmap(jaxopt.loss.multiclass_sparsemax_loss)(labels, x)
        return ball, losses, jax.vmap(jaxopt.projection.projection_l2_sphere)(x)

    return projected, (spec(8192, 256), integers(256, 8192))
