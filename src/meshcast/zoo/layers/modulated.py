"""What transformers of diffusion share: layers whose heads are normalised and whose norms are modulated, and their products."""

from __future__ import annotations

import jax

from meshcast.zoo.layers.blocks import block_weights
from meshcast.zoo.layers.pieces import BATCH
from meshcast.zoo.layers.products import product
from meshcast.zoo.layers.saving import HEADS, kept
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def half_weights(dim: int, heads: int, ffn: int) -> dict[str, ShardedWeight]:
    """Attention, whose queries and keys are normalised by heads, and the feed-forward half; norms are what modulates them."""
    layer = {name: w for name, w in block_weights(dim, ffn).items() if not name.startswith("norm")}
    return layer | {name: ShardedWeight((dim // heads,)) for name in ("q_norm", "k_norm")}


def heads_of(h: jax.Array, w: dict[str, jax.Array], *, layout: MeshLayout, heads: int) -> tuple[jax.Array, ...]:
    """Queries, keys and values (B, S, heads, width) of normalised activations."""
    batch, length, dim = h.shape
    qkv = product("bsd,dce->bsce", h, w["wqkv"], layout, over=(BATCH, "context", None)) + w["bqkv"]
    qkv = layout.constrain(kept(qkv, HEADS), BATCH, "context", None, "tensor")
    return tuple(qkv[:, :, i].reshape(batch, length, heads, dim // heads) for i in range(3))


def merged(y: jax.Array, w: dict[str, jax.Array], *, layout: MeshLayout) -> jax.Array:
    """The projection of what heads attended to, without its bias."""
    y = layout.constrain(y.reshape(*y.shape[:2], -1), BATCH, "context", "tensor")
    return product("bse,ed->bsd", y, w["wo"], layout, over=(BATCH, "context", "tensor"), number=2)
