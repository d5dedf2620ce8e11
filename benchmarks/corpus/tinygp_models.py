"""tinygp: Gaussian processes by dense and by quasi-separable solvers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import tinygp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

TINYGP = Catalogue("tinygp", "library", "science")
CATALOGUES = [TINYGP]


@TINYGP.program("tinygp_matern_condition_train", "train")
def _() -> Call:
    def loss(params: Any, x: Any, y: Any) -> Any:
        kernel = jnp.exp(params[0]) * tinygp.kernels.Matern32(jnp.exp(params[1])) + tinygp.kernels.Cosine(
            jnp.exp(params[2])
        )
        return -tinygp.GaussianProcess(kernel, x, diag=jnp.exp(params[3]) + 0.01).log_probability(y)

    return jax.value_and_grad(loss), (spec(4), spec(1024), spec(1024))


@TINYGP.program("tinygp_quasiseparable_infer", "infer")
def _() -> Call:
    def likelihood(params: Any, x: Any, y: Any) -> Any:
        kernel = tinygp.kernels.quasisep.Matern52(jnp.exp(params[0])) + tinygp.kernels.quasisep.SHO(
            jnp.exp(params[1]), 2.0
        )
        return tinygp.GaussianProcess(kernel, x, diag=0.1, assume_sorted=True).log_probability(y)

    return likelihood, (spec(2), spec(512), spec(512))


@TINYGP.program("tinygp_predict_multivariate", "infer")
def _() -> Call:
    def predicted(scale: Any, x: Any, y: Any, test: Any) -> Any:
        kernel = tinygp.transforms.Linear(
            scale, tinygp.kernels.ExpSquared(distance=tinygp.kernels.distance.L2Distance())
        )
        gp = tinygp.GaussianProcess(kernel, x, diag=0.1)
        return gp.predict(y, test, return_var=True)

    return predicted, (spec(4, 4), spec(1024, 4), spec(1024), spec(2048, 4))
