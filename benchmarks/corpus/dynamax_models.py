"""Dynamax: hidden Markov models and linear and nonlinear state spaces: filters, smoothers, steps of fitting."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from dynamax.hidden_markov_model import hmm_filter, hmm_posterior_mode, hmm_smoother, hmm_two_filter_smoother
from dynamax.hidden_markov_model.parallel_inference import hmm_smoother as parallel_hmm_smoother
from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_filter, lgssm_smoother
from dynamax.linear_gaussian_ssm.parallel_inference import lgssm_smoother as parallel_lgssm_smoother
from dynamax.nonlinear_gaussian_ssm import ParamsNLGSSM, extended_kalman_filter, unscented_kalman_filter
from dynamax.nonlinear_gaussian_ssm.inference_ukf import UKFHyperParams

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import abstract, spec

DYNAMAX = Catalogue("dynamax", "library", "probabilistic")
CATALOGUES = [DYNAMAX]


def markov(method: Any, batch: int, time: int, states: int) -> Call:
    """A method of inference over a batch of series, from the likelihoods of each state."""

    def run(first: Any, turns: Any, likelihoods: Any) -> Any:
        start, matrix = jax.nn.softmax(first), jax.nn.softmax(turns)
        return jax.vmap(lambda each: method(start, matrix, each))(likelihoods)

    return run, (spec(states), spec(states, states), spec(batch, time, states))


DYNAMAX.add("dynamax_hmm_filter_infer", partial(markov, hmm_filter, 256, 200, 32), "infer")
DYNAMAX.add("dynamax_hmm_smoother_infer", partial(markov, hmm_smoother, 128, 200, 32), "infer")
DYNAMAX.add("dynamax_hmm_two_filter_infer", partial(markov, hmm_two_filter_smoother, 64, 100, 64), "infer")
DYNAMAX.add("dynamax_hmm_viterbi_infer", partial(markov, hmm_posterior_mode, 256, 200, 32), "infer")
DYNAMAX.add("dynamax_hmm_parallel_infer", partial(markov, parallel_hmm_smoother, 16, 512, 32), "infer")


def kalman(method: Any, batch: int, time: int, states: int, seen: int) -> Call:
    """A method of inference of a linear Gaussian model over a batch of series."""
    model = LinearGaussianSSM(states, seen)
    params = abstract(jax.eval_shape(lambda: model.initialize(jax.random.PRNGKey(0))[0]))
    return (lambda params, series: jax.vmap(lambda each: method(params, each))(series)), (
        params,
        spec(batch, time, seen),
    )


DYNAMAX.add("dynamax_kalman_filter_infer", partial(kalman, lgssm_filter, 128, 100, 8, 4), "infer")
DYNAMAX.add("dynamax_kalman_smoother_infer", partial(kalman, lgssm_smoother, 64, 64, 8, 4), "infer")
DYNAMAX.add("dynamax_kalman_parallel_infer", partial(kalman, parallel_lgssm_smoother, 4, 512, 8, 4), "infer")


@DYNAMAX.program("dynamax_kalman_likelihood_train", "train")
def _() -> Call:
    model = LinearGaussianSSM(6, 4)
    params = abstract(jax.eval_shape(lambda: model.initialize(jax.random.PRNGKey(0))[0]))

    def loss(params: Any, series: Any) -> Any:
        return -jax.vmap(lambda each: lgssm_filter(params, each).marginal_loglik)(series).mean()

    return jax.grad(loss), (params, spec(64, 64, 4))


def nonlinear(method: Any, batch: int) -> Call:
    """A filter of pendulums that are seen by the sine of their angle."""

    def run(series: Any) -> Any:
        params = ParamsNLGSSM(
            initial_mean=jnp.zeros(2),
            initial_covariance=jnp.eye(2),
            dynamics_function=lambda z: jnp.array([z[0] + 0.01 * z[1], z[1] - 0.098 * jnp.sin(z[0])]),
            dynamics_covariance=0.01 * jnp.eye(2),
            emission_function=lambda z: jnp.array([jnp.sin(z[0])]),
            emission_covariance=0.1 * jnp.eye(1),
        )
        return jax.vmap(lambda each: method(params, each))(series)

    return run, (spec(batch, 100, 1),)


DYNAMAX.add("dynamax_extended_kalman_infer", partial(nonlinear, extended_kalman_filter, 512), "infer")
DYNAMAX.add(
    "dynamax_unscented_kalman_infer",
    partial(nonlinear, lambda params, each: unscented_kalman_filter(params, each, UKFHyperParams()), 512),
    "infer",
)
