"""evosax: a generation of an evolution strategy."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from evosax import algorithms

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, spec

EVOSAX = Catalogue("evosax", "library", "optimizer")
CATALOGUES = [EVOSAX]


def evolved(name: str, population: int, size: int) -> Call:
    """One generation on the sphere function: ask, evaluate, tell."""
    strategy = getattr(algorithms, name)(population_size=population, solution=jnp.zeros(size))
    params = strategy.default_params
    if name in ("SimpleGA", "DifferentialEvolution", "PSO"):  # which start from a population, the others from a mean
        first = (spec(population, size), spec(population), abstract(params))
        state = jax.eval_shape(lambda key, x, f, p: strategy.init(key, x, f, p), KEY, *first)
    else:
        state = jax.eval_shape(lambda key, x, p: strategy.init(key, x, p), KEY, spec(size), abstract(params))

    def generation(key: Any, state: Any, params: Any) -> Any:
        first, second = jax.random.split(key)
        people, state = strategy.ask(first, state, params)
        fitness = jnp.sum(jnp.square(people) - jnp.cos(people), -1)
        return strategy.tell(second, people, fitness, state, params)

    return generation, (KEY, abstract(state), abstract(params))


for name, population, size in (
    ("CMA_ES", 256, 256),
    ("Open_ES", 4096, 8192),
    ("PGPE", 2048, 8192),
    ("SNES", 4096, 4096),
    ("Sep_CMA_ES", 2048, 4096),
    ("PSO", 4096, 2048),
    ("DifferentialEvolution", 4096, 1024),
    ("SimpleGA", 8192, 2048),
):
    EVOSAX.add(f"evosax_{name.lower()}_generation", partial(evolved, name, population, size), "step")
