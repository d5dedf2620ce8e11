"""The Transformer (Vaswani 2017): an encoder-decoder with layer norms, biases and fixed positions; data, FSDP, tensor-parallel.

Norms come before each half, as in the tensor2tensor variant that fairseq's and MLPerf's recipes train.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import Fields, forward_program, layout_for_heads, supervised_program
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import block_weights, feed_forward, self_attention, through_layers
from meshcast.zoo.layers.pieces import BATCH, Remat, embed, layer_norm, stacked
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.translation import TransformerConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")
_LONGEST = 1e4  # of the wavelengths of positions, over 2 pi


def _layer_weights(config: TransformerConfig, *, crossed: bool) -> dict[str, ShardedWeight]:
    found = block_weights(config.dim, config.ffn)
    if crossed:
        dim = config.dim
        found |= {f"cross_{name}": ShardedWeight((dim,)) for name in ("norm_scale", "norm_bias", "bo")}
        found |= {f"cross_w{name}": ShardedWeight((dim, dim), ("fsdp", "tensor")) for name in "qkv"}
        found |= {f"cross_b{name}": ShardedWeight((dim,), ("tensor",)) for name in "qkv"}
        found["cross_wo"] = ShardedWeight((dim, dim), ("tensor", "fsdp"))
    return found


def weights(config: TransformerConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    tree: dict[str, Any] = {"embedding": ShardedWeight((config.vocab, config.dim), ("tensor", "fsdp"))}
    for name in ("encoder", "decoder"):
        tree[name] = {
            "layers": stacked(_layer_weights(config, crossed=name == "decoder"), config.layers),
            "norm_scale": ShardedWeight((config.dim,)),
            "norm_bias": ShardedWeight((config.dim,)),
        }
    return tree


def sinusoids(length: int, dim: int) -> jax.Array:
    """Sines and cosines of positions (S, dim): sin(p / 10000^(2 i / dim)) (Vaswani 2017, section 3.5)."""
    rates = _LONGEST ** (-jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def layer(
    x: jax.Array, w: dict[str, jax.Array], memory: jax.Array | None, *, config: TransformerConfig, layout: MeshLayout
) -> jax.Array:
    """One layer of the encoder, or of the decoder where there is a `memory` (B, T, dim) of the encoder's."""

    def normed(x: jax.Array, name: str) -> jax.Array:
        return layout.constrain(layer_norm(x, w[f"{name}_scale"], w[f"{name}_bias"]), BATCH, None, None)

    def summed(x: jax.Array, y: jax.Array) -> jax.Array:
        return layout.constrain(x + y, BATCH, None, None)

    attending = partial(attend, layout=layout, causal=memory is not None)
    y = self_attention(normed(x, "norm1"), w, layout=layout, heads=config.heads, attend=attending)
    x = summed(x, y + w["bo"])
    if memory is not None:
        y = _crossed(normed(x, "cross_norm"), memory, w, config=config, layout=layout)
        x = summed(x, y + w["cross_bo"])
    return summed(x, feed_forward(normed(x, "norm2"), w, layout=layout, activation="relu") + w["b2"])


def _crossed(
    h: jax.Array, memory: jax.Array, w: dict[str, jax.Array], *, config: TransformerConfig, layout: MeshLayout
) -> jax.Array:
    """Attention of normalised activations over the encoder's, without its bias."""

    def heads(source: jax.Array, name: str) -> jax.Array:
        made = source @ w[f"cross_w{name}"] + w[f"cross_b{name}"]
        return layout.constrain(made.reshape(*source.shape[:2], config.heads, -1), BATCH, None, "tensor", None)

    q, k, v = heads(h, "q"), heads(memory, "k"), heads(memory, "v")
    y = attend(q, k, v, layout=layout, causal=False).reshape(h.shape)
    return layout.constrain(y, BATCH, None, "tensor") @ w["cross_wo"]


def stack(
    params: Any, tokens: jax.Array, name: str, memory: jax.Array | None,
    *, config: TransformerConfig, layout: MeshLayout, remat: Remat,
) -> jax.Array:  # fmt: skip
    """The encoder, or the decoder over the encoder's output."""
    tree, side = weights(config), params[name]
    x = embed(layout.gather(params["embedding"], tree["embedding"]), tokens, layout) * config.dim**0.5
    x = layout.constrain(x + sinusoids(tokens.shape[1], config.dim).astype(x.dtype), BATCH, None, None)
    body = partial(layer, memory=memory, config=config, layout=layout)
    x = through_layers(lambda x, w: body(x, w), x, side["layers"], tree[name]["layers"], remat=remat, layout=layout)
    return layout.constrain(layer_norm(x, side["norm_scale"], side["norm_bias"]), BATCH, None, None)


def logits(params: Any, data: Any, *, config: TransformerConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Logits (B, S, vocabulary) of every position of the output."""
    memory = stack(params, data["inputs"], "encoder", None, config=config, layout=layout, remat=remat)
    x = stack(params, data["tokens"], "decoder", memory, config=config, layout=layout, remat=remat)
    table = layout.gather(params["embedding"], weights(config)["embedding"])
    return layout.constrain(jnp.einsum("bsd,vd->bsv", x, table), BATCH, None, "tensor")


def train_step(
    config: TransformerConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 128,
    seq: int = 32,
    target: int = 0,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "autodiff",
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on sentences of `seq` tokens and their translations of `target`, as many where that is zero."""
    layout = layout_for_heads(mesh, AXES, config.heads, attention, products)
    score = partial(logits, config=config, layout=layout, remat=remat)
    rows, outputs = ((batch, seq), jnp.int32), ((batch, target or seq), jnp.int32)
    fields: Fields = {"inputs": rows, "tokens": outputs, "targets": outputs}
    return supervised_program(
        layout, weights(config), score, fields, labels="targets",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: TransformerConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 128,
    seq: int = 32,
    target: int = 0,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Scoring: `(params, batch) -> logits` of every position of the output."""
    layout = layout_for_heads(mesh, AXES, config.heads, attention)
    score = partial(logits, config=config, layout=layout, remat="autodiff")
    fields: Fields = {"inputs": ((batch, seq), jnp.int32), "tokens": ((batch, target or seq), jnp.int32)}
    result = layout.struct((batch, target or seq, config.vocab), param_dtype, BATCH, None, "tensor")
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)
