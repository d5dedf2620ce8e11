"""NumPyro: steps of variational inference, leapfrog steps on the potentials of its models, densities."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO, autoguide
from numpyro.infer.util import initialize_model

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import spec

NUMPYRO = Catalogue("numpyro", "library", "probabilistic")
CATALOGUES = [NUMPYRO]


def regression(x: Any, y: Any) -> None:
    """A Bayesian logistic regression."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def mixture(x: Any, y: Any) -> None:
    """A mixture of Gaussians of 32 components, summed over the assignment."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(32)))
    with numpyro.plate("components", 32):
        means = numpyro.sample("means", dist.Normal(0, 5).expand([x.shape[1]]).to_event(1))
        scales = numpyro.sample("scales", dist.HalfNormal(1).expand([x.shape[1]]).to_event(1))
    each = dist.Independent(dist.Normal(means, scales), 1)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(shares), each), obs=x)


def horseshoe(x: Any, y: Any) -> None:
    """A network of one hidden layer with sparse weights."""
    width = numpyro.sample("width", dist.HalfCauchy(1))
    local = numpyro.sample("local", dist.HalfCauchy(1).expand([x.shape[1], 64]).to_event(2))
    first = numpyro.sample("first", dist.Normal(0, 1).expand([x.shape[1], 64]).to_event(2)) * width * local
    second = numpyro.sample("second", dist.Normal(0, 1).expand([64]).to_event(1))
    numpyro.sample("y", dist.StudentT(4.0, jnp.tanh(x @ first) @ second, 0.1), obs=y)


def state_space(x: Any, y: Any) -> None:
    """A local level model by a scan of sample sites."""
    noise = numpyro.sample("noise", dist.HalfNormal(1))

    def turn(level: Any, each: Any) -> Any:
        level = numpyro.sample("level", dist.Normal(level, 0.1).to_event(1))
        return level, numpyro.sample("each", dist.Normal(level, noise).to_event(1), obs=each)

    numpyro.contrib.control_flow.scan(turn, jnp.zeros(x.shape[1]), x)


def variational(model: Any, rows: int, columns: int, guide: Any, elbo: Any) -> Call:
    """A step of stochastic variational inference."""
    svi = SVI(model, guide(model), numpyro.optim.Adam(1e-3), elbo)
    data = spec(rows, columns), spec(rows)
    state = jax.eval_shape(svi.init, jax.random.key(0), *data)
    return (lambda state, x, y: svi.update(state, x, y)), (state, *data)


@NUMPYRO.program("numpyro_svi_logistic_train", "train")
def _() -> Call:
    return variational(regression, 65536, 256, autoguide.AutoNormal, TraceMeanField_ELBO())


NUMPYRO.add(
    "numpyro_svi_mixture_train",
    partial(variational, mixture, 16384, 16, autoguide.AutoDiagonalNormal, Trace_ELBO(8)),
    "train",
)
NUMPYRO.add(
    "numpyro_svi_horseshoe_lowrank",
    partial(variational, horseshoe, 8192, 64, autoguide.AutoLowRankMultivariateNormal, Trace_ELBO(4)),
    "train",
)
NUMPYRO.add(
    "numpyro_svi_flow_guide",
    partial(variational, regression, 8192, 32, partial(autoguide.AutoIAFNormal, num_flows=3), Trace_ELBO(16)),
    "train",
)


def chains(model: Any, rows: int, columns: int, steps: int, count: int) -> Call:
    """Leapfrog steps of many chains on a model's potential, as Hamiltonian Monte Carlo takes them."""
    data = spec(rows, columns), spec(rows)
    real = jnp.ones((4, columns)), jnp.ones(4)
    small = initialize_model(jax.random.PRNGKey(0), model, model_args=real, dynamic_args=True)
    shape = jax.tree.map(lambda leaf: spec(count, *leaf.shape), small.param_info.z)

    def leapfrog(places: Any, momenta: Any, x: Any, y: Any) -> Any:
        grad = jax.vmap(jax.grad(small.potential_fn(x, y)))

        def turn(_: Any, both: Any) -> Any:
            places, momenta = both
            momenta = jax.tree.map(lambda p, g: p - 0.005 * g, momenta, grad(places))
            places = jax.tree.map(lambda q, p: q + 0.01 * p, places, momenta)
            return places, jax.tree.map(lambda p, g: p - 0.005 * g, momenta, grad(places))

        return jax.lax.fori_loop(0, steps, turn, (places, momenta))

    return leapfrog, (shape, shape, *data)


NUMPYRO.add("numpyro_hmc_logistic_step", partial(chains, regression, 16384, 64, 10, 16), "step")
NUMPYRO.add("numpyro_hmc_mixture_step", partial(chains, mixture, 4096, 8, 5, 4), "step")


@NUMPYRO.program("numpyro_distributions_log_prob", "infer")
def _() -> Call:
    def densities(x: Any, a: Any) -> Any:
        a = jnp.abs(a) + 0.5
        share = jax.nn.sigmoid(x)
        return (
            dist.Gamma(a, 2.0).log_prob(a),
            dist.Beta(a, 2.0).log_prob(share),
            dist.NegativeBinomial2(a, 3.0).log_prob(jnp.floor(a)),
            dist.VonMises(x, a).log_prob(x),
            dist.LKJCholesky(4).log_prob(jnp.broadcast_to(jnp.eye(4), (*x.shape[:1], 4, 4))),
            dist.ZeroInflatedPoisson(0.3, a).log_prob(jnp.floor(a)),
        )

    return densities, (spec(2048, 1024), spec(2048, 1024))
