"""Matfree: log-determinants and decompositions of operators that are known by their products with vectors alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from matfree import decomp, funm, stochtrace

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

MATFREE = Catalogue("matfree", "example", "science")
CATALOGUES = [MATFREE]


@MATFREE.program("matfree_kernel_logdet_grad", "train")
def _() -> Call:
    points = spec(8192, 8)

    def product(vector: Any, scale: Any, at: Any) -> Any:
        squares = jnp.sum(at**2, axis=1)
        far = squares[:, None] + squares[None, :] - 2.0 * at @ at.T
        return jnp.exp(-0.5 * far / scale**2) @ vector + 0.1 * vector

    solver = decomp.tridiag_sym(10)
    integrand = funm.monte_carlo_funm_sym_logdet(solver)
    sampler = stochtrace.sampler_signs(jnp.zeros(8192), num=4)
    estimate = stochtrace.estimator_monte_carlo(integrand, sampler=sampler)

    def logdet(scale: Any, at: Any, key: Any) -> Any:
        return jnp.mean(estimate(product, key, scale, at))

    return jax.value_and_grad(logdet), (spec(), points, KEY)


@MATFREE.program("matfree_bidiagonal", "infer")
def _() -> Call:
    bidiagonal = decomp.bidiag(32, reortho="full")

    def decomposed(matrix: Any, start: Any) -> Any:
        return bidiagonal(lambda vector, held: held @ vector, start, matrix)

    return decomposed, (spec(16_384, 8192), spec(8192))
