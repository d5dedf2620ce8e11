"""GPJax: covariances of its kernels, and what training a Gaussian process takes."""

from __future__ import annotations

from typing import Any

import gpjax
import jax
import jax.numpy as jnp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

GPJAX = Catalogue("gpjax", "example", "probabilistic")
CATALOGUES = [GPJAX]


@GPJAX.program("gpjax_marginal_likelihood_grad", "step")
def _() -> Call:
    def loss(scale: Any, spread: Any, noise: Any, x: Any, y: Any) -> Any:
        kernel = gpjax.kernels.RBF(lengthscale=scale, variance=spread)
        gram = kernel.cross_covariance(x, x)
        factor = jnp.linalg.cholesky(gram + noise * jnp.eye(x.shape[0]))
        solved = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * jnp.sum(solved**2) + jnp.sum(jnp.log(jnp.diagonal(factor)))

    return jax.value_and_grad(loss, argnums=(0, 1, 2)), (spec(), spec(), spec(), spec(2048, 4), spec(2048, 1))


@GPJAX.program("gpjax_matern_cross_covariance", "infer")
def _() -> Call:
    def crossed(scale: Any, spread: Any, x: Any, z: Any) -> Any:
        kernel = gpjax.kernels.Matern52(lengthscale=scale, variance=spread)
        return kernel.cross_covariance(x, z) @ jnp.ones((z.shape[0],))

    return crossed, (spec(), spec(), spec(8192, 3), spec(1024, 3))
