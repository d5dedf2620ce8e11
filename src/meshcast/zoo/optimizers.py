"""Optimizers as pure functions on pytrees: `state(params)` for abstract parameters, `update(...)` for traced ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def _like(params: Any) -> Any:
    """One fp32 accumulator per parameter, sharded as the parameter is."""
    return jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, jnp.float32, sharding=p.sharding), params)


def _scalar_like(params: Any) -> jax.ShapeDtypeStruct:
    """A replicated step counter on the mesh of the parameters."""
    sharding = jax.tree.leaves(params)[0].sharding
    return jax.ShapeDtypeStruct((), jnp.int32, sharding=sharding and sharding.update(spec=()))


def adamw_state(params: Any) -> dict[str, Any]:
    """First and second moments in fp32, and the step count: 8 bytes per parameter."""
    return {"m": _like(params), "v": _like(params), "count": _scalar_like(params)}


def adamw(
    params: Any,
    grads: Any,
    opt_state: dict[str, Any],
    *,
    learning_rate: float = 3e-4,
    betas: tuple[float, float] = (0.9, 0.95),
    epsilon: float = 1e-8,
    weight_decay: float = 0.1,
    clip: float | None = 1.0,
) -> tuple[Any, dict[str, Any]]:
    """Parameters and state after one step of AdamW (Loshchilov 2019), the gradient clipped to a global norm, if any."""
    grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
    scale: Any = 1.0
    if clip is not None:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
        scale = jnp.minimum(1.0, clip / (norm + 1e-6))
    count = opt_state["count"] + 1
    first, second = betas
    m = jax.tree.map(lambda m, g: first * m + (1 - first) * (g * scale), opt_state["m"], grads)
    v = jax.tree.map(lambda v, g: second * v + (1 - second) * jnp.square(g * scale), opt_state["v"], grads)
    first_bias, second_bias = 1 - first**count, 1 - second**count

    def step(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        update = (m / first_bias) / (jnp.sqrt(v / second_bias) + epsilon) + weight_decay * p.astype(jnp.float32)
        stepped: jax.Array = p.astype(jnp.float32) - learning_rate * update
        return stepped.astype(p.dtype)

    return jax.tree.map(step, params, m, v), {"m": m, "v": v, "count": count}


def sgd_state(params: Any) -> Any:
    """The momentum in fp32: 4 bytes per parameter."""
    return _like(params)


def sgd(
    params: Any,
    grads: Any,
    opt_state: Any,
    *,
    learning_rate: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
) -> tuple[Any, Any]:
    """Parameters and momentum after one step of stochastic gradient descent, weight decay in the gradient."""

    def accumulate(p: jax.Array, g: jax.Array, velocity: jax.Array) -> jax.Array:
        return momentum * velocity + g.astype(jnp.float32) + weight_decay * p.astype(jnp.float32)

    velocity = jax.tree.map(accumulate, params, grads, opt_state)
    step = jax.tree.map(lambda p, v: (p.astype(jnp.float32) - learning_rate * v).astype(p.dtype), params, velocity)
    return step, velocity
