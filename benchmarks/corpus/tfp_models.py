"""TensorFlow Probability on JAX: state space models, Gaussian processes, flows, special functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

TFP = Catalogue("tensorflow-probability", "library", "probabilistic")
CATALOGUES = [TFP]


def density(w: Any, x: Any, y: Any) -> Any:
    """The log-density of a logistic regression."""
    return -jnp.sum(jax.nn.softplus(-y * (x @ w))) - 0.5 * jnp.sum(w**2)


SAMPLE = spec(64), spec(8192, 64), spec(8192)


tfd, tfb, tfk = tfp.distributions, tfp.bijectors, tfp.math.psd_kernels


@TFP.program("tfp_hidden_markov_loglik_train", "train", group="sequence")
def _() -> Call:
    def loss(first: Any, turns: Any, means: Any, series: Any) -> Any:
        model = tfd.HiddenMarkovModel(
            tfd.Categorical(first), tfd.Categorical(turns), tfd.Normal(means, 1.0), num_steps=100
        )
        return -model.log_prob(series).mean()

    return jax.grad(loss, argnums=(0, 1, 2)), (spec(16), spec(16, 16), spec(16), spec(256, 100))


@TFP.program("tfp_gaussian_process_train", "train", group="science")
def _() -> Call:
    def loss(params: Any, x: Any, y: Any) -> Any:
        kernel = tfk.MaternFiveHalves(jnp.exp(params[0]), jnp.exp(params[1]))
        return -tfd.GaussianProcess(kernel, x, observation_noise_variance=jnp.exp(params[2]) + 0.01).log_prob(y)

    return jax.value_and_grad(loss), (spec(3), spec(1024, 4), spec(1024))


@TFP.program("tfp_kalman_filter_infer", "infer", group="sequence")
def _() -> Call:
    def filtered(series: Any, turn: Any, seen: Any) -> Any:
        model = tfd.LinearGaussianStateSpaceModel(
            num_timesteps=64,
            transition_matrix=0.9 * jnp.eye(8) + 0.01 * turn,
            transition_noise=tfd.MultivariateNormalDiag(scale_diag=jnp.ones(8)),
            observation_matrix=seen,
            observation_noise=tfd.MultivariateNormalDiag(scale_diag=jnp.ones(4)),
            initial_state_prior=tfd.MultivariateNormalDiag(scale_diag=jnp.ones(8)),
        )
        return model.forward_filter(series)[:3]

    return filtered, (spec(512, 64, 4), spec(8, 8), spec(4, 8))


@TFP.program("tfp_masked_autoregressive_flow_infer", "infer")
def _() -> Call:
    def density(weights: Any, x: Any) -> Any:
        masks = [jnp.tril(jnp.ones((32, 32)), -1), jnp.tril(jnp.ones((32, 32)), -1)]

        def net(x: Any) -> Any:
            hidden = jnp.tanh(x @ (weights[0] * masks[0].T))
            return hidden @ (weights[1] * jnp.triu(jnp.ones((32, 32)))), jnp.tanh(
                hidden @ (weights[2] * jnp.triu(jnp.ones((32, 32))))
            )

        flow = tfd.TransformedDistribution(
            tfd.MultivariateNormalDiag(jnp.zeros(32)), tfb.MaskedAutoregressiveFlow(shift_and_log_scale_fn=net)
        )
        return flow.log_prob(x)

    return density, ([spec(32, 32)] * 3, spec(16384, 32))


@TFP.program("tfp_hmc_transition_step", "step")
def _() -> Call:
    def transition(key: Any, places: Any, x: Any, y: Any) -> Any:
        target = jax.vmap(lambda w: density(w, x, y))
        hmc = tfp.mcmc.HamiltonianMonteCarlo(target, step_size=0.01, num_leapfrog_steps=8)
        return hmc.one_step(places, hmc.bootstrap_results(places), seed=key)[0]

    return transition, (KEY, spec(64, 64), *SAMPLE[1:])


@TFP.program("tfp_special_statistics", "infer", group="science", origin="helper")
def _() -> Call:
    def values(x: Any) -> Any:
        positive = jnp.abs(x) + 0.1
        stats, maths = tfp.stats, tfp.math
        return (
            maths.log_bessel_kve(1.5, positive),
            maths.erfcx(x),
            maths.lbeta(positive, 2.0),
            stats.percentile(x, 90.0, axis=0),
            stats.correlation(x, x),
            stats.auto_correlation(x, axis=0, max_lags=64),
        )

    return values, (spec(4096, 256),)


@TFP.program("tfp_wishart_and_friends_sample", "infer")
def _() -> Call:
    def sampled(key: Any, scale: Any) -> Any:
        return (
            tfd.WishartTriL(16.0, scale_tril=jnp.tril(scale) + 4 * jnp.eye(8)).sample(1024, seed=key),
            tfd.Horseshoe(1.0).sample((1024, 64), seed=key),
            tfd.PERT(0.0, 0.5, 1.0).sample((1024, 64), seed=key),
            tfd.SinhArcsinh(0.0, 1.0, 0.5).sample((1024, 1024), seed=key),
        )

    return sampled, (KEY, spec(8, 8))


@TFP.program("tfp_structural_quantized_logistic_train", "train", group="vision", origin="helper")
def _() -> Call:
    def loss(means: Any, scales: Any, logits: Any, pixels: Any) -> Any:
        each = tfd.QuantizedDistribution(
            tfd.TransformedDistribution(tfd.Logistic(means, jnp.exp(scales)), tfb.Shift(-0.5)), low=0.0, high=255.0
        )
        mixed = tfd.MixtureSameFamily(tfd.Categorical(logits=logits), each)
        return -mixed.log_prob(pixels).mean()

    shape = (16, 64, 64, 3, 10)
    return jax.grad(loss, argnums=(0, 1, 2)), (spec(*shape), spec(*shape), spec(*shape), spec(*shape[:-1]))
