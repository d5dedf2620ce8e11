"""Self-attention as Llama and Mixtral have it: RMS norm, rotary positions, fewer key heads than query heads."""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp

from meshcast.models.layers import BATCH, attention, rms_norm, rotary
from meshcast.models.sharding import Layout, Weight


class Decoder(Protocol):
    """The part of a decoder's configuration that its attention reads."""

    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def heads(self) -> int: ...  # noqa: D102
    @property
    def kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def rope_theta(self) -> float: ...  # noqa: D102


def key_copies(config: Decoder, layout: Layout) -> int:
    """How often each key head is repeated, so that every tensor shard has one of its own."""
    layout.require(config.heads, "tensor", "attention heads")
    shards = layout.size("tensor")
    if shards > config.kv_heads and shards % config.kv_heads == 0:
        return shards // config.kv_heads
    layout.require(config.kv_heads, "tensor", "key heads")
    return 1


def attention_weights(config: Decoder, layout: Layout) -> dict[str, Weight]:
    """The weights of one layer's attention, stored over "fsdp" and split by head over "tensor"."""
    width, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        "attention_norm": Weight((config.dim,)),
        "wq": Weight((config.dim, width), ("fsdp", "tensor")),
        "wk": Weight((config.dim, narrow), ("fsdp", "tensor")),
        "wv": Weight((config.dim, narrow), ("fsdp", "tensor")),
        "wo": Weight((width, config.dim), ("tensor", "fsdp")),
    }


def project(
    x: jax.Array, w: dict[str, jax.Array], positions: jax.Array, *, config: Decoder, layout: Layout
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values (B, S, heads, width) of normalised activations; queries and keys rotated."""
    copies = key_copies(config, layout)

    def heads(h: jax.Array) -> jax.Array:
        return layout.constrain(h, BATCH, None, "tensor", None)

    def split(weight: jax.Array) -> jax.Array:
        return (x @ weight).reshape(*x.shape[:2], -1, config.head_dim)

    q = heads(split(w["wq"]))
    k, v = (heads(jnp.repeat(split(w[name]), copies, axis=2)) for name in ("wk", "wv"))
    q, k = (heads(rotary(h, positions, theta=config.rope_theta)) for h in (q, k))
    return q, k, v


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, layout: Layout) -> jax.Array:
    """The heads' outputs (B, S, width), side by side and split by head over "tensor"."""
    h = attention(q, k, v, mask)
    return layout.constrain(h.reshape(*q.shape[:2], -1), BATCH, None, "tensor")


def self_attention(
    x: jax.Array, w: dict[str, jax.Array], mask: jax.Array, *, config: Decoder, layout: Layout
) -> jax.Array:
    """The attention half of a layer, without its residual sum: a partial sum over "tensor" until constrained."""
    h = layout.constrain(rms_norm(x, w["attention_norm"]), BATCH, None, None)
    q, k, v = project(h, w, jnp.arange(x.shape[1]), config=config, layout=layout)
    return attend(q, k, v, mask, layout) @ w["wo"]
