"""Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads come from one narrow latent vector.

The cache holds the latent and one rotated key for all heads. A prompt expands the latent into keys and values; a single
step instead moves the expansion to the query and to the output, and attends in the latent space ("absorbed").
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.zoo.layers import kv_cache
from meshcast.zoo.layers.attention import attend
from meshcast.zoo.layers.pieces import BATCH, rms_norm, rotary
from meshcast.zoo.layers.products import product, products
from meshcast.zoo.layers.saving import HEADS, kept
from meshcast.zoo.shapes.decoder import DecoderConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def attention_weights(config: DecoderConfig) -> dict[str, ShardedWeight]:
    """The weights of one layer's attention: projections to latents stored over "fsdp", heads split over "tensor"."""
    query = config.heads * (config.head_dim + config.rope_dim)
    found = {
        "wkv_down": ShardedWeight((config.dim, config.latent_rank + config.rope_dim), ("fsdp", None)),
        "kv_norm": ShardedWeight((config.latent_rank,)),
        "wk_up": ShardedWeight((config.latent_rank, config.heads, config.head_dim), ("fsdp", "tensor", None)),
        "wv_up": ShardedWeight((config.latent_rank, config.heads, config.value_dim), ("fsdp", "tensor", None)),
        "wo": ShardedWeight((config.heads * config.value_dim, config.dim), ("tensor", "fsdp")),
    }
    if not config.query_rank:
        return found | {"wq": ShardedWeight((config.dim, query), ("fsdp", "tensor"))}
    return found | {
        "wq_down": ShardedWeight((config.dim, config.query_rank), ("fsdp", None)),
        "q_norm": ShardedWeight((config.query_rank,)),
        "wq_up": ShardedWeight((config.query_rank, query), ("fsdp", "tensor")),
    }


def cache_shapes(config: DecoderConfig, batch: int, length: int) -> dict[str, kv_cache.Entry]:
    """What one layer keeps of every position: the latent, and the key that all heads share."""
    return {
        "latent": kv_cache.Entry(shape=(batch, length, config.latent_rank), axes=(BATCH, None, None)),
        "rotated": kv_cache.Entry(shape=(batch, length, config.rope_dim), axes=(BATCH, None, None)),
    }


def self_attention(
    h: jax.Array,
    w: dict[str, jax.Array],
    place: kv_cache.CachePlace,
    cache: kv_cache.Cache | None,
    *,
    config: DecoderConfig,
    layout: MeshLayout,
) -> tuple[jax.Array, kv_cache.Cache | None]:
    """The attention half of a layer on normalised activations, a partial sum over "tensor", and the cache after it."""
    layout.require(config.heads, "tensor", "attention heads")
    theta, width = config.rope_theta, config.head_dim
    first = "wq_down" if config.query_rank else "wq"
    q, down = products(
        "bsd,dr->bsr",
        h,
        (w[first], w["wkv_down"]),
        layout,
        over=(BATCH, "context", None),
        held=layout.sequence_parallel,
    )
    if config.query_rank:
        q = product("bsd,de->bse", rms_norm(kept(q), w["q_norm"]), w["wq_up"], layout, over=(BATCH, "context", None))
    q = layout.constrain(q.reshape(*h.shape[:2], config.heads, -1), BATCH, "context", "tensor", None)
    plain, turned = q[..., :width], rotary(q[..., width:], place.positions, theta=theta)
    down = kept(down)
    latent = rms_norm(down[..., : config.latent_rank], w["kv_norm"])
    rotated = rotary(down[..., None, config.latent_rank :], place.positions, theta=theta)[:, :, 0]
    if cache is not None:
        new = {"latent": latent, "rotated": rotated}
        earlier = kv_cache.before(cache, place) if place.past else {}
        cache = kv_cache.append(cache, new, place)
        if earlier:  # of a chunk the keys and values before it are expanded again
            latent, rotated = (jnp.concatenate([earlier[n], new[n]], axis=-2) for n in ("latent", "rotated"))
    if cache is not None and h.shape[1] == 1:
        y = _absorbed(plain, turned, w, kv_cache.of_layer(cache, place), place)
    else:
        k, v = products("btr,rhd->bthd", latent, (w["wk_up"], w["wv_up"]), layout, over=(BATCH, "context", None))
        v = layout.constrain(v, BATCH, "context", "tensor", None)
        shared = jnp.broadcast_to(rotated[:, :, None], (*k.shape[:3], config.rope_dim))
        k = layout.constrain(jnp.concatenate([k, shared], axis=-1), BATCH, "context", "tensor", None)
        q = jnp.concatenate([plain, turned], axis=-1)
        q, k, v = (layout.constrain(kept(x, HEADS), BATCH, "context", "tensor", None) for x in (q, k, v))
        y = attend(q, k, v, layout=layout)
    y = layout.constrain(y.reshape(*h.shape[:2], -1), BATCH, "context", "tensor")
    return product(
        "bse,ed->bsd", y, w["wo"], layout, over=(BATCH, "context", "tensor"), held=layout.attends_at_once, number=4
    ), cache


def _absorbed(
    plain: jax.Array, turned: jax.Array, w: dict[str, jax.Array], seen: kv_cache.Cache, place: kv_cache.CachePlace
) -> jax.Array:
    """Attention in the latent space: q k = q (W_k c) = (q W_k) c, and the values likewise."""
    scale = (plain.shape[-1] + turned.shape[-1]) ** -0.5
    query = jnp.einsum("bshd,rhd->bshr", plain, w["wk_up"])
    scores = jnp.einsum("bshr,btr->bhst", query, seen["latent"])
    scores = scores + jnp.einsum("bshd,btd->bhst", turned, seen["rotated"])
    mask = kv_cache.visible(scores.shape[-1], place)
    scores = jnp.where(mask, scores.astype(jnp.float32) * scale, jnp.float32(-1e30))
    weights = jax.nn.softmax(scores, axis=-1).astype(plain.dtype)
    context = jnp.einsum("bhst,btr->bshr", weights, seen["latent"])
    return jnp.einsum("bshr,rhd->bshd", context, w["wv_up"])
