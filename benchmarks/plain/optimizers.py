"""Optimizers, written out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.plain.catalogue import F32, Call, spec


def sgd(params: Any, grads: Any, state: Any) -> Any:
    """With momentum."""
    state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
    return jax.tree.map(lambda p, m: p - 0.01 * m, params, state), state


def adam(params: Any, grads: Any, state: Any, decay: float = 0.0, clip: float | None = None) -> Any:
    """Adam or AdamW, with gradients clipped by their norm or not."""
    m, v, t = state
    if clip is not None:
        norm = jnp.sqrt(sum(jnp.sum(g.astype(F32) ** 2) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / (norm + 1e-6)), grads)
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8) - decay * 1e-3 * p, params, m, v)
    return params, (m, v, t)


def training(loss: Callable[..., Any], params: Any, data: tuple[Any, ...], how: str = "adam") -> Call:
    """A training step; `how` names the optimizer."""
    like = jax.tree.map(lambda p: spec(*p.shape, dtype=p.dtype), params)
    state: Any = like if how == "sgd" else (like, like, spec())
    update = {
        "sgd": sgd, "adam": adam, "adamw": partial(adam, decay=0.1), "clipped": partial(adam, decay=0.1, clip=1.0),
    }[how]  # fmt: skip

    def step(params: Any, state: Any, *data: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *data)
        params, state = update(params, grads, state)
        return params, state, value

    return step, (params, state, *data), (0, 1)
