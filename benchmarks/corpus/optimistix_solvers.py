"""Optimistix: least squares, roots, minima and fixed points."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

OPTIMISTIX = Catalogue("optimistix", "library", "science")
CATALOGUES = [OPTIMISTIX]


def rosenbrock(x: Any, args: Any) -> Any:
    """Residuals of the generalised Rosenbrock function."""
    return 10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]


@OPTIMISTIX.program("optimistix_gauss_newton_rosenbrock", "step")
def _() -> Call:
    solver = optx.GaussNewton(1e-5, 1e-5)
    return jax.vmap(lambda x: optx.least_squares(rosenbrock, solver, x, max_steps=16, throw=False).value), (
        spec(256, 32),
    )


@OPTIMISTIX.program("optimistix_dogleg_curve_fit", "step")
def _() -> Call:
    def residuals(p: Any, data: Any) -> Any:
        return p[0] * jnp.exp(-p[1] * data[0]) + p[2] - data[1]

    solver = optx.Dogleg(1e-4, 1e-4, linear_solver=lx.QR())
    fit = lambda p, t, y: optx.least_squares(residuals, solver, p, (t, y), max_steps=12, throw=False).value  # noqa: E731
    return jax.vmap(fit, in_axes=(0, None, 0)), (spec(2048, 3), spec(256), spec(2048, 256))


@OPTIMISTIX.program("optimistix_newton_root", "step")
def _() -> Call:
    def equations(y: Any, a: Any) -> Any:
        return jnp.tanh(a @ y) + y - 0.5

    solver = optx.Newton(1e-5, 1e-5)
    return jax.vmap(lambda y, a: optx.root_find(equations, solver, y, a, max_steps=10, throw=False).value), (
        spec(128, 64),
        spec(128, 64, 64),
    )


@OPTIMISTIX.program("optimistix_bfgs_logistic", "train")
def _() -> Call:
    def loss(w: Any, data: Any) -> Any:
        x, y = data
        return jnp.mean(jax.nn.softplus(-y * (x @ w))) + 1e-3 * jnp.sum(w**2)

    solver = optx.BFGS(1e-5, 1e-5)
    return (lambda w, x, y: optx.minimise(loss, solver, w, (x, y), max_steps=20, throw=False).value), (
        spec(256),
        spec(65536, 256),
        spec(65536),
    )


@OPTIMISTIX.program("optimistix_fixed_point_equilibrium", "infer")
def _() -> Call:
    def layer(z: Any, args: Any) -> Any:
        w, x = args
        return jnp.tanh(0.1 * z @ w + x)

    solver = optx.FixedPointIteration(1e-4, 1e-4)
    return (lambda z, w, x: optx.fixed_point(layer, solver, z, (w, x), max_steps=30, throw=False).value), (
        spec(2048, 1024),
        spec(1024, 1024),
        spec(2048, 1024),
    )


@OPTIMISTIX.program("optimistix_bisection_batched", "infer")
def _() -> Call:
    solver = optx.Bisection(1e-6, 1e-6)

    def one(a: Any) -> Any:
        options = {"lower": -4.0, "upper": 4.0}
        return optx.root_find(
            lambda x, a: x**3 + x - jnp.tanh(a), solver, 0.0, a, options=options, max_steps=32, throw=False
        ).value

    return jax.vmap(one), (spec(1048576),)
