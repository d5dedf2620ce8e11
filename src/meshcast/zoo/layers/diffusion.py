"""What diffusion models share: the embedding of a time step, and noise to be predicted."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.zoo.sharding import ShardedWeight


def time_weights(frequencies: int, dim: int) -> dict[str, ShardedWeight]:
    """The two layers that embed a time step."""
    return {
        "time1": ShardedWeight((frequencies, dim)),
        "time1_bias": ShardedWeight((dim,)),
        "time2": ShardedWeight((dim, dim)),
        "time2_bias": ShardedWeight((dim,)),
    }


def embed_time(times: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    """The vector (B, dim) of time steps (B,): sines and cosines through two layers."""
    half = w["time1"].shape[0] // 2
    angle = times[:, None] * jnp.exp(-jnp.log(1e4) * jnp.arange(half) / half)
    waves = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1).astype(w["time1"].dtype)
    return jax.nn.silu(waves @ w["time1"] + w["time1_bias"]) @ w["time2"] + w["time2_bias"]


def noised(images: jax.Array, noise: jax.Array, times: jax.Array) -> jax.Array:
    """Images after `times` of a thousand steps of noise, by a cosine schedule (Nichol 2021)."""
    share = jnp.cos(0.5 * jnp.pi * times / 1000.0)[:, None, None, None]
    return share * images + jnp.sqrt(1 - jnp.square(share)) * noise


def squared_error(predicted: jax.Array, noise: jax.Array) -> jax.Array:
    """The mean squared error in fp32."""
    return jnp.mean(jnp.square(predicted.astype(jnp.float32) - noise))
