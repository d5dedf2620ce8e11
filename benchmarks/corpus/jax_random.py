"""Sampling: the distributions of `jax.random`, each with keys of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

RANDOM = Catalogue("jax.random", "helper", "probabilistic")
CATALOGUES = [RANDOM]
MANY = (4096, 2048)


def drawn(name: str, *arguments: Any, **options: Any) -> Call:
    """A call of one of the distributions."""
    return (lambda key, *given: getattr(jax.random, name)(key, *given, **options)), (KEY, *arguments)


for name, arguments, options in (
    ("uniform", (), {"shape": MANY}),
    ("normal", (), {"shape": MANY, "dtype": jnp.bfloat16}),
    ("truncated_normal", (), {"shape": MANY, "lower": -2.0, "upper": 2.0}),
    ("dirichlet", (spec(64),), {"shape": (4096,)}),
    ("categorical", (spec(256, 50257),), {}),
    ("permutation", (), {"x": 1048576}),
    ("choice", (spec(1000000),), {"shape": (65536,), "replace": True}),
    ("multivariate_normal", (spec(64), spec(64, 64)), {"shape": (65536,), "method": "svd"}),
    ("orthogonal", (), {"n": 256}),
    ("gumbel", (), {"shape": MANY, "dtype": jnp.float16}),
    ("t", (spec(),), {"shape": MANY}),
):
    endless = name in ("dirichlet", "t")
    narrow = {jnp.bfloat16: "bf16", jnp.float16: "f16"}.get(options.get("dtype"), "f32")
    RANDOM.add(f"random_{name}", partial(drawn, name, *arguments, **options), "infer", narrow)


@RANDOM.program("random_poisson_binomial", "infer", "f32")
def _() -> Call:
    def counts(key: Any, rate: Any) -> Any:
        rate = jnp.abs(rate) + 1
        return jax.random.poisson(key, rate), jax.random.binomial(key, 100 * rate, 0.3)

    return counts, (KEY, spec(1024, 512))


@RANDOM.program("random_dropout_masks_folded", "infer", "bf16")
def _() -> Call:
    def masked(key: Any, x: Any) -> Any:
        for layer in range(6):
            x = jnp.where(jax.random.bernoulli(jax.random.fold_in(key, layer), 0.9, x.shape), x / 0.9, 0)
        return x

    return masked, (KEY, spec(16, 1024, 1024, dtype=jnp.bfloat16))


@RANDOM.program("random_per_example_keys", "infer", "f32")
def _() -> Call:
    def noises(key: Any, images: Any) -> Any:
        keys = jax.random.split(key, images.shape[0])
        return jax.vmap(lambda k, im: im + 0.1 * jax.random.normal(k, im.shape) * jax.random.rademacher(k, im.shape))(
            keys, images
        )

    return noises, (KEY, spec(256, 64, 64, 3))


@RANDOM.program("random_rbg_bits_laplace", "infer", "f32")
def _() -> Call:
    def sampled(key: Any) -> Any:
        key = jax.random.wrap_key_data(key, impl="rbg")
        return jax.random.laplace(key, MANY), jax.random.bits(key, MANY)

    return sampled, (spec(4, dtype=jnp.uint32),)
