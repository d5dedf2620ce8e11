"""Distrax: flows, hidden Markov models, policies."""

from __future__ import annotations

from typing import Any

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

from benchmarks.corpus.haiku_nets import step as haiku_step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

DISTRAX = Catalogue("distrax", "library", "probabilistic")
CATALOGUES = [DISTRAX]


@DISTRAX.program("distrax_realnvp_train", "train", origin="example")
def _() -> Call:
    def loss(x: Any) -> Any:
        mask = jnp.arange(64) % 2 == 0
        flow = []
        for number in range(6):
            net = hk.Sequential([hk.nets.MLP([256, 256, 128]), hk.Reshape((64, 2))])
            affine = lambda p: distrax.ScalarAffine(p[..., 0], log_scale=jnp.tanh(p[..., 1]))  # noqa: E731
            flow.append(distrax.MaskedCoupling(mask if number % 2 else ~mask, net, affine))
        base = distrax.MultivariateNormalDiag(jnp.zeros(64), jnp.ones(64))
        return -distrax.Transformed(base, distrax.Chain(flow)).log_prob(x).mean()

    return haiku_step(loss, spec(4096, 64))


@DISTRAX.program("distrax_spline_flow_sample", "infer")
def _() -> Call:
    def sampled(params: Any, key: Any) -> Any:
        spline = distrax.Block(distrax.RationalQuadraticSpline(params, -4.0, 4.0), 1)
        base = distrax.MultivariateNormalDiag(jnp.zeros(32), jnp.ones(32))
        return distrax.Transformed(base, spline).sample_and_log_prob(seed=key, sample_shape=(16384,))

    return sampled, (spec(32, 3 * 8 + 1), KEY)


@DISTRAX.program("distrax_hmm_forward_backward", "infer", group="sequence")
def _() -> Call:
    def smoothed(first: Any, turns: Any, means: Any, series: Any) -> Any:
        model = distrax.HMM(
            distrax.Categorical(first),
            distrax.Categorical(turns),
            distrax.MultivariateNormalDiag(means, jnp.ones_like(means)),
        )
        return jax.vmap(lambda one: (model.forward_backward(one)[2], model.viterbi(one)))(series)

    return smoothed, (spec(32), spec(32, 32), spec(32, 8), spec(64, 128, 8))


@DISTRAX.program("distrax_policies_kl", "train", group="rl", origin="helper")
def _() -> Call:
    def loss(logits: Any, old: Any, mean: Any, actions: Any) -> Any:
        policy, before = distrax.Categorical(logits), distrax.Categorical(old)
        squashed = distrax.Transformed(
            distrax.MultivariateNormalDiag(mean, jnp.ones_like(mean)), distrax.Block(distrax.Tanh(), 1)
        )
        values = policy.kl_divergence(before) - 0.01 * policy.entropy() - squashed.log_prob(0.9 * jnp.tanh(actions))
        return values.mean()

    return jax.grad(loss, argnums=(0, 2)), (spec(65536, 18), spec(65536, 18), spec(65536, 8), spec(65536, 8))


@DISTRAX.program("distrax_mixture_samples", "infer")
def _() -> Call:
    def sampled(logits: Any, means: Any, key: Any) -> Any:
        mixed = distrax.MixtureSameFamily(
            distrax.Categorical(logits), distrax.MultivariateNormalDiag(means, jnp.ones_like(means))
        )
        return mixed.sample_and_log_prob(seed=key, sample_shape=(64,))

    return sampled, (spec(256, 16), spec(256, 16, 32), KEY)


@DISTRAX.program("distrax_gaussian_posteriors_train", "train", origin="helper")
def _() -> Call:
    def loss(means: Any, factors: Any, points: Any) -> Any:
        lower = jnp.tril(factors) + 8.0 * jnp.eye(factors.shape[-1])
        made = distrax.MultivariateNormalTri(means, lower)
        return -made.log_prob(points).mean() - 0.1 * made.entropy().mean()

    return jax.grad(loss, argnums=(0, 1)), (spec(2048, 24), spec(2048, 24, 24), spec(2048, 24))
