"""T5 (Raffel 2020): an encoder-decoder with relative positions, without biases; data, FSDP and tensor-parallel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.models.blocks import through_layers
from meshcast.models.experts import gated, gated_weights
from meshcast.models.frame import Fields, forward_program, layout_for_heads, supervised_program
from meshcast.models.layers import BATCH, Remat, causal_mask, embed, rms_norm, stacked
from meshcast.models.program import Program
from meshcast.models.shapes.t5 import Config
from meshcast.models.sharding import Layout, Weight

AXES = ("data", "fsdp", "tensor")
_FAR = 128
"""Distances beyond which all share a bucket (Raffel 2020, section 2.1)."""


def _attention_weights(config: Config, prefix: str) -> dict[str, Weight]:
    width = config.heads * config.head_dim
    return {
        f"{prefix}norm": Weight((config.dim,)),
        **{f"{prefix}w{name}": Weight((config.dim, width), ("fsdp", "tensor")) for name in "qkv"},
        f"{prefix}wo": Weight((width, config.dim), ("tensor", "fsdp")),
    }


def _layer_weights(config: Config, *, crossed: bool) -> dict[str, Weight]:
    found = _attention_weights(config, "self_") | {"ffn_norm": Weight((config.dim,))}
    found |= gated_weights(config.dim, config.ffn)
    if not config.gated:
        del found["gate"]
    return found | (_attention_weights(config, "cross_") if crossed else {})


def weights(config: Config) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    tree: dict[str, Any] = {"embedding": Weight((config.vocab, config.dim), ("tensor", "fsdp"))}
    for name, layers in (("encoder", config.layers), ("decoder", config.decoder_layers or config.layers)):
        tree[name] = {
            "layers": stacked(_layer_weights(config, crossed=name == "decoder"), layers),
            "distances": Weight((config.buckets, config.heads), (None, "tensor")),
            "norm": Weight((config.dim,)),
        }
    if not config.tied:
        tree["head"] = Weight((config.dim, config.vocab), ("fsdp", "tensor"))
    return tree


def distance_buckets(length: int, buckets: int, *, both_ways: bool) -> jax.Array:
    """The bucket of every pair of positions: exact when near, logarithmic when far, one half each way in the encoder."""
    distance = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    offset = jnp.zeros_like(distance)
    if both_ways:
        buckets //= 2
        offset = buckets * (distance > 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)
    near = buckets // 2
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / near) / jnp.log(_FAR / near)
    far = jnp.minimum(near + (ratio * (buckets - near)).astype(jnp.int32), buckets - 1)
    return offset + jnp.where(distance < near, distance, far)


def attend(
    x: jax.Array, source: jax.Array, w: dict[str, jax.Array], prefix: str, bias: jax.Array | None,
    *, config: Config, layout: Layout,
) -> jax.Array:  # fmt: skip
    """Attention of x (B, S, dim) over a source (B, T, dim), scores without a scale, plus a bias (H, S, T)."""

    def heads(h: jax.Array, name: str) -> jax.Array:
        h = (h @ w[f"{prefix}w{name}"]).reshape(*h.shape[:2], config.heads, config.head_dim)
        return layout.constrain(h, BATCH, None, "tensor", None)

    q, k, v = heads(x, "q"), heads(source, "k"), heads(source, "v")
    scores = jnp.einsum("bshd,bthd->bhst", q, k).astype(jnp.float32)
    scores = scores if bias is None else scores + bias
    shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    y = jnp.einsum("bhst,bthd->bshd", shares, v).reshape(*x.shape[:2], -1)
    return layout.constrain(y, BATCH, None, "tensor") @ w[f"{prefix}wo"]


def feed_forward(h: jax.Array, w: dict[str, jax.Array], *, config: Config, layout: Layout) -> jax.Array:
    """ReLU between two products, or gated GELU."""
    if config.gated:
        return gated(h, w, activation="gelu", layout=layout)
    return layout.constrain(jax.nn.relu(h @ w["up"]), BATCH, None, "tensor") @ w["down"]


def stack(
    params: Any, tokens: jax.Array, name: str, memory: jax.Array | None,
    *, config: Config, layout: Layout, remat: Remat,
) -> jax.Array:  # fmt: skip
    """The encoder, or the decoder over the encoder's output (B, T, dim)."""
    tree, side = weights(config), params[name]
    x = embed(layout.gather(params["embedding"], tree["embedding"]), tokens, layout)
    x = layout.constrain(x, BATCH, None, None)
    length = tokens.shape[1]
    near = distance_buckets(length, config.buckets, both_ways=memory is None)
    bias = jnp.take(side["distances"], near, axis=0, mode="clip").transpose(2, 0, 1).astype(jnp.float32)
    bias = bias if memory is None else jnp.where(causal_mask(length), bias, jnp.float32(-1e30))

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return layout.constrain(rms_norm(x, scale), BATCH, None, None)

    def half(x: jax.Array, y: jax.Array) -> jax.Array:
        return layout.constrain(x + y, BATCH, None, None)

    def body(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        h = norm(x, w["self_norm"])
        x = half(x, attend(h, h, w, "self_", bias, config=config, layout=layout))
        if memory is not None:
            h = norm(x, w["cross_norm"])
            x = half(x, attend(h, memory, w, "cross_", None, config=config, layout=layout))
        return half(x, feed_forward(norm(x, w["ffn_norm"]), w, config=config, layout=layout))

    x = through_layers(body, x, side["layers"], tree[name]["layers"], remat=remat, layout=layout)
    return norm(x, side["norm"])


def logits(params: Any, data: Any, *, config: Config, layout: Layout, remat: Remat) -> jax.Array:
    """Logits (B, S, vocabulary) of every position of the output."""
    memory = stack(params, data["inputs"], "encoder", None, config=config, layout=layout, remat=remat)
    x = stack(params, data["tokens"], "decoder", memory, config=config, layout=layout, remat=remat)
    name, equation = ("embedding", "bsd,vd->bsv") if config.tied else ("head", "bsd,dv->bsv")
    x = x * config.dim**-0.5 if config.tied else x
    table = layout.gather(params[name], weights(config)[name])
    return layout.constrain(jnp.einsum(equation, x, table), BATCH, None, "tensor")


def train_step(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int = 512,
    target: int = 114,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "none",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> Program:
    """One AdamW step on inputs of `seq` and outputs of `target` tokens (114: spans of 15 % of 512, as pretrained)."""
    layout = layout_for_heads(mesh, AXES, config.heads)
    score = partial(logits, config=config, layout=layout, remat=remat)
    rows, outputs = ((batch, seq), jnp.int32), ((batch, target), jnp.int32)
    fields: Fields = {"inputs": rows, "tokens": outputs, "targets": outputs}
    return supervised_program(
        layout, weights(config), score, fields, labels="targets",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int = 512,
    target: int = 114,
    param_dtype: DTypeLike = "bfloat16",
) -> Program:
    """Scoring: `(params, batch) -> logits` of every position of the output."""
    layout = layout_for_heads(mesh, AXES, config.heads)
    score = partial(logits, config=config, layout=layout, remat="none")
    fields: Fields = {"inputs": ((batch, seq), jnp.int32), "tokens": ((batch, target), jnp.int32)}
    result = layout.struct((batch, target, config.vocab), param_dtype, BATCH, None, "tensor")
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)
