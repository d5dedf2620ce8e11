"""BlackJAX: kernels of Markov chains and particles on a logistic regression."""

from __future__ import annotations

from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import optax

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

BLACKJAX = Catalogue("blackjax", "library", "probabilistic")
CATALOGUES = [BLACKJAX]


def density(w: Any, x: Any, y: Any) -> Any:
    """The log-density of a logistic regression."""
    return -jnp.sum(jax.nn.softplus(-y * (x @ w))) - 0.5 * jnp.sum(w**2)


SAMPLE = spec(64), spec(8192, 64), spec(8192)


def kernel(make: Any, chains: int, steps: int) -> Call:
    """Some steps of a BlackJAX kernel, for several chains at once."""
    place, x, y = SAMPLE

    def run(key: Any, places: Any, x: Any, y: Any) -> Any:
        algorithm = make(lambda w: density(w, x, y))
        states = jax.vmap(
            lambda place, key: algorithm.init(place, key) if make.func in WITH_KEY else algorithm.init(place)
        )(places, jax.random.split(key, chains))

        def turn(states: Any, key: Any) -> Any:
            states, _ = jax.vmap(algorithm.step)(jax.random.split(key, chains), states)
            return states, states.position

        return jax.lax.scan(turn, states, jax.random.split(key, steps))

    return run, (KEY, spec(chains, *place.shape), x, y)


ONES = jnp.ones(64)
WITH_KEY = (blackjax.mclmc, blackjax.ghmc)
for name, make in (
    ("mala", partial(blackjax.mala, step_size=0.01)),
    ("hmc_diagonal", partial(blackjax.hmc, step_size=0.01, inverse_mass_matrix=ONES, num_integration_steps=16)),
    ("nuts", partial(blackjax.nuts, step_size=0.01, inverse_mass_matrix=ONES, max_num_doublings=4)),
    ("mclmc", partial(blackjax.mclmc, L=1.0, step_size=0.05)),
    ("ghmc", partial(blackjax.ghmc, step_size=0.01, momentum_inverse_scale=ONES, alpha=0.9, delta=0.1)),
    (
        "random_walk",
        partial(blackjax.additive_step_random_walk, random_step=blackjax.mcmc.random_walk.normal(0.1 * ONES)),
    ),
    ("barker", partial(blackjax.barker_proposal, step_size=0.01)),
):
    BLACKJAX.add(f"blackjax_{name}_chains", partial(kernel, make, 32, 8), "step")


@BLACKJAX.program("blackjax_elliptical_slice", "step")
def _() -> Call:
    def run(key: Any, place: Any, x: Any, y: Any) -> Any:
        algorithm = blackjax.elliptical_slice(lambda w: density(w, x, y), mean=jnp.zeros(64), cov=jnp.eye(64))
        return jax.lax.scan(
            lambda s, k: (algorithm.step(k, s)[0], None), algorithm.init(place), jax.random.split(key, 16)
        )[0]

    return run, (KEY, *SAMPLE)


@BLACKJAX.program("blackjax_smc_tempered", "step")
def _() -> Call:
    def run(key: Any, particles: Any, x: Any, y: Any) -> Any:
        prior = lambda w: -0.5 * jnp.sum(w**2)  # noqa: E731
        algorithm = blackjax.tempered_smc(
            prior,
            lambda w: density(w, x, y),
            blackjax.hmc.build_kernel(),
            blackjax.hmc.init,
            blackjax.smc.extend_params({"step_size": 0.01, "inverse_mass_matrix": ONES, "num_integration_steps": 4}),
            blackjax.smc.resampling.systematic,
            num_mcmc_steps=2,
        )
        return algorithm.step(key, algorithm.init(particles), 0.5)[0]

    return run, (KEY, spec(1024, 64), spec(1024, 64), spec(1024))


@BLACKJAX.program("blackjax_meanfield_vi_step", "train")
def _() -> Call:
    def run(key: Any, state: Any, x: Any, y: Any) -> Any:
        algorithm = blackjax.meanfield_vi(lambda w: density(w, x, y), optax.adam(1e-2), num_samples=64)
        return algorithm.step(key, state)[0]

    made = blackjax.meanfield_vi(lambda w: -0.5 * jnp.sum(w**2), optax.adam(1e-2), 64)
    return run, (KEY, jax.eval_shape(made.init, SAMPLE[0]), *SAMPLE[1:])
