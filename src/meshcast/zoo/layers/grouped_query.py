"""Self-attention with rotary positions and fewer key heads than query heads, over a KV cache where there is one."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.base import UnsupportedError
from meshcast.zoo.layers import adapters, kv_cache
from meshcast.zoo.layers.attention import attend
from meshcast.zoo.layers.pieces import BATCH, attention, causal_attention, rms_norm, rotary
from meshcast.zoo.layers.products import product, products
from meshcast.zoo.layers.saving import HEADS, kept
from meshcast.zoo.shapes.decoder import DecoderConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def key_copies(config: DecoderConfig, layout: MeshLayout) -> int:
    """How often each key head is repeated, so that every tensor shard has one of its own."""
    layout.require(config.heads, "tensor", "attention heads")
    shards = layout.size("tensor")
    if shards > config.kv_heads and shards % config.kv_heads == 0:
        return shards // config.kv_heads
    layout.require(config.kv_heads, "tensor", "key heads")
    return 1


def attention_weights(config: DecoderConfig) -> dict[str, ShardedWeight]:
    """The weights of one layer's attention, stored over "fsdp" and split by head over "tensor"."""
    width, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found = {
        "wq": ShardedWeight((config.dim, width), ("fsdp", "tensor")),
        "wk": ShardedWeight((config.dim, narrow), ("fsdp", "tensor")),
        "wv": ShardedWeight((config.dim, narrow), ("fsdp", "tensor")),
        "wo": ShardedWeight((width, config.dim), ("tensor", "fsdp")),
    }
    if config.qkv_bias:
        found |= {
            name: ShardedWeight((size,), ("tensor",)) for name, size in (("bq", width), ("bk", narrow), ("bv", narrow))
        }
    if config.qk_norm:
        found |= {name: ShardedWeight((config.head_dim,)) for name in ("q_norm", "k_norm")}
    if config.wide_qk_norm:
        found |= {name: ShardedWeight((size,), ("tensor",)) for name, size in (("q_norm", width), ("k_norm", narrow))}
    if config.out_bias:
        found["attention_out_bias"] = ShardedWeight((config.dim,))
    if config.sinks:
        found["sinks"] = ShardedWeight((config.heads,), ("tensor",))
    return found | adapters.adapter_weights(config)


def cache_shapes(config: DecoderConfig, layout: MeshLayout, batch: int, length: int) -> dict[str, kv_cache.Entry]:
    """What one layer keeps of every position: its keys and values."""
    entry = kv_cache.Entry(
        shape=(batch, config.kv_heads * key_copies(config, layout), length, config.head_dim),
        axes=(BATCH, "tensor", None, None),
    )
    return {"k": entry, "v": entry}


def project(
    x: jax.Array,
    w: dict[str, jax.Array],
    positions: jax.Array,
    *,
    config: DecoderConfig,
    layout: MeshLayout,
    theta: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values (B, S, heads, width) of normalised activations; queries and keys rotated."""
    copies = key_copies(config, layout)

    def heads(h: jax.Array) -> jax.Array:
        return layout.constrain(h, BATCH, "context", "tensor", None)

    made = products(
        "bsd,de->bse",
        x,
        [w[f"w{name}"] for name in "qkv"],
        layout,
        over=(BATCH, "context", None),
        held=layout.sequence_parallel,
    )
    made = adapters.with_heads(made, x, w, config)

    def split(name: str) -> jax.Array:
        h = made["qkv".index(name)]
        h = h + w[f"b{name}"] if config.qkv_bias else h
        h = rms_norm(kept(h), w[f"{name}_norm"]) if config.wide_qk_norm and name != "v" else h
        h = h.reshape(*x.shape[:2], -1, config.head_dim)
        return rms_norm(kept(h), w[f"{name}_norm"]) if config.qk_norm and name != "v" else h

    q = heads(split("q"))
    k, v = (heads(jnp.repeat(split(name), copies, axis=2)) for name in ("k", "v"))
    if not config.alibi:
        q, k = (heads(turned(h, positions, theta=theta, width=config.rotated)) for h in (q, k))
    q, k, v = (heads(kept(h, HEADS)) for h in (q, k, v))
    return q, k, v


def turned(h: jax.Array, positions: jax.Array, *, theta: float, width: int) -> jax.Array:
    """Heads with so many of their leading numbers rotated by position, all where the width is zero."""
    if not width:
        return rotary(h, positions, theta=theta)
    return jnp.concatenate([rotary(h[..., :width], positions, theta=theta), h[..., width:]], axis=-1)


def slopes(heads: int) -> list[float]:
    """ALiBi's slope of every head (Press 2022): 2^(-8 i / n) for a power of two n, then every other one of 2 n."""
    power = 1 << (heads.bit_length() - 1)
    found = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    return found + [2.0 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]


def _extras(config: DecoderConfig, w: dict[str, jax.Array], length: int) -> dict[str, jax.Array]:
    """What the scores of `length` positions have beside products: a bias that grows with the position, or sinks.

    A softmax does not see what all its scores share, so slope * t is as good as -slope * (s - t).
    """
    found = {"sinks": w["sinks"]} if config.sinks else {}
    if config.alibi:
        slope = jnp.asarray(slopes(config.heads), jnp.float32)
        found["bias"] = slope[:, None] * jnp.arange(length, dtype=jnp.float32)
    return found


def self_attention(
    h: jax.Array,
    w: dict[str, jax.Array],
    place: kv_cache.CachePlace,
    cache: kv_cache.Cache | None,
    *,
    config: DecoderConfig,
    layout: MeshLayout,
    window: int,
) -> tuple[jax.Array, kv_cache.Cache | None]:
    """The attention half of a layer on normalised activations, a partial sum over "tensor", and the cache after it.

    One new position attends to the cache, several attend to themselves and, where they are a chunk of a prompt, to what the
    cache has of those before.
    """
    q, k, v = project(h, w, place.positions, config=config, layout=layout, theta=config.theta(window))
    if cache is not None:
        new = {"k": kv_cache.heads_first(k), "v": kv_cache.heads_first(v)}
        earlier = kv_cache.before(cache, place) if place.past else {}
        cache = kv_cache.append(cache, new, place)
        if earlier:
            k, v = (kv_cache.heads_first(jnp.concatenate([earlier[n], new[n]], axis=-2)) for n in ("k", "v"))
    if cache is not None and h.shape[1] == 1:
        seen = kv_cache.of_layer(cache, place)
        room = seen["k"].shape[-2]
        mask, extras = kv_cache.visible(room, place), _extras(config, w, room)
        y = attention(q, seen["k"], seen["v"], mask, cap=config.attention_cap, heads_first=True, **extras)
    elif config.alibi or config.sinks:
        if layout.attention != "plain" or layout.size("context") > 1:
            raise UnsupportedError(
                f"{'ALiBi' if config.alibi else 'attention sinks'}: only plain attention over whole sequences has them",
                fix="use attention=plain without a context axis",
            )
        y = causal_attention(q, k, v, window=window, cap=config.attention_cap, **_extras(config, w, k.shape[1]))
    else:
        y = attend(q, k, v, layout=layout, window=window, cap=config.attention_cap)
    y = layout.constrain(y.reshape(*q.shape[:2], -1), BATCH, "context", "tensor")
    made = product(
        "bse,ed->bsd", y, w["wo"], layout, over=(BATCH, "context", "tensor"), held=layout.attends_at_once, number=4
    )
    return adapters.with_result(made, y, w, config), cache
