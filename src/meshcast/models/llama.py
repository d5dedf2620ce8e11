"""Llama 3: a decoder with grouped-query attention and SwiGLU, for training, a forward pass, or decoding.

FSDP x tensor parallel: weights are stored over "fsdp" and gathered layer by layer, heads and the feed-forward width
are split over "tensor", the batch over "data" and "fsdp". Shapes after Dubey et al. 2024, "The Llama 3 Herd of Models".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.models.grouped_query import attend, attention_weights, key_copies, project, self_attention
from meshcast.models.layers import (
    BATCH,
    Remat,
    cast,
    causal_mask,
    checkpointed,
    cross_entropy,
    embed,
    rms_norm,
)
from meshcast.models.program import Program, adamw_program, jit_options, token_batch
from meshcast.models.sharding import Layout, Weight

AXES = ("data", "fsdp", "tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The sizes of a model; `tied` shares the embedding with the output projection."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int = 128256
    head_dim: int = 128
    rope_theta: float = 500000.0
    tied: bool = False


TINY = Config(layers=2, dim=64, heads=8, kv_heads=4, ffn=128, vocab=512, head_dim=16)
LLAMA_1B = Config(layers=16, dim=2048, heads=32, kv_heads=8, ffn=8192, head_dim=64, tied=True)
LLAMA_8B = Config(layers=32, dim=4096, heads=32, kv_heads=8, ffn=14336)
LLAMA_70B = Config(layers=80, dim=8192, heads=64, kv_heads=8, ffn=28672)
LLAMA_405B = Config(layers=126, dim=16384, heads=128, kv_heads=8, ffn=53248)


def weights(config: Config, layout: Layout) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    layer = attention_weights(config, layout) | {
        "ffn_norm": Weight((config.dim,)),
        "gate": Weight((config.dim, config.ffn), ("fsdp", "tensor")),
        "up": Weight((config.dim, config.ffn), ("fsdp", "tensor")),
        "down": Weight((config.ffn, config.dim), ("tensor", "fsdp")),
    }
    tree: dict[str, Any] = {
        "embedding": Weight((config.vocab, config.dim), ("tensor", "fsdp")),
        "layers": {name: weight.stacked(config.layers) for name, weight in layer.items()},
        "norm": Weight((config.dim,)),
    }
    if not config.tied:
        tree["head"] = Weight((config.dim, config.vocab), ("fsdp", "tensor"))
    return tree


def layer_weights(tree: dict[str, Any]) -> dict[str, Weight]:
    """The weights of one layer, as a scan's body sees them."""
    return {name: Weight(weight.shape[1:], weight.axes[1:]) for name, weight in tree["layers"].items()}


def swiglu(x: jax.Array, w: dict[str, jax.Array], layout: Layout) -> jax.Array:
    """The feed-forward half of a layer, without its residual sum."""
    h = layout.constrain(rms_norm(x, w["ffn_norm"]), BATCH, None, None)
    gate, up = (layout.constrain(h @ w[name], BATCH, None, "tensor") for name in ("gate", "up"))
    return (jax.nn.silu(gate) * up) @ w["down"]


def project_out(x: jax.Array, params: dict[str, Any], tree: dict[str, Any], layout: Layout) -> jax.Array:
    """Logits (B, S, vocabulary split over "tensor"), in the compute dtype so that its backward products are too."""
    name, equation = ("head", "bsd,dv->bsv") if "head" in params else ("embedding", "bsd,vd->bsv")
    table = layout.gather(params[name], tree[name])
    x = layout.constrain(rms_norm(x, params["norm"]), BATCH, None, None)
    return layout.constrain(jnp.einsum(equation, x, table), BATCH, None, "tensor")


def logits(
    params: dict[str, Any],
    tokens: jax.Array,
    *,
    config: Config,
    layout: Layout,
    remat: Remat = "none",
    sequence_parallel: bool = False,
    compute_dtype: DTypeLike = jnp.bfloat16,
) -> jax.Array:
    """Logits of every position; with `sequence_parallel` the residual stream is split by position over "tensor"."""
    tree, residual = weights(config, layout), (BATCH, "tensor" if sequence_parallel else None, None)
    params = cast(params, compute_dtype)
    mask = causal_mask(tokens.shape[1])
    x = layout.constrain(embed(layout.gather(params["embedding"], tree["embedding"]), tokens, layout), *residual)

    def body(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        w = layout.gather(w, layer_weights(tree))
        x = x + layout.constrain(self_attention(x, w, mask, config=config, layout=layout), *residual)
        return x + layout.constrain(swiglu(x, w, layout), *residual), None

    x, _ = jax.lax.scan(checkpointed(body, remat, layout), x, params["layers"])
    return project_out(x, params, tree, layout)


def train_step(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    microbatches: int = 1,
    remat: Remat = "full",
    sequence_parallel: bool = False,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> Program:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = Layout.of(mesh, axes=AXES)

    def loss(params: Any, batch: Any) -> jax.Array:
        predicted = logits(
            params,
            batch["tokens"],
            config=config,
            layout=layout,
            remat=remat,
            sequence_parallel=sequence_parallel,
            compute_dtype=compute_dtype,
        )
        return cross_entropy(predicted, batch["targets"])

    params = layout.params(weights(config, layout), param_dtype)
    data = token_batch(layout, batch, seq, microbatches=microbatches)
    return adamw_program(layout, loss, params, data, microbatches=microbatches)


def forward(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    sequence_parallel: bool = False,
    param_dtype: DTypeLike = "bfloat16",
) -> Program:
    """Scoring or prefill: `(params, batch) -> logits` of every position."""
    layout = Layout.of(mesh, axes=AXES)

    def forward(params: Any, batch: Any) -> jax.Array:
        return logits(
            params,
            batch["tokens"],
            config=config,
            layout=layout,
            sequence_parallel=sequence_parallel,
            compute_dtype=param_dtype,
        )

    params = layout.params(weights(config, layout), param_dtype)
    data = {"tokens": layout.struct((batch, seq), jnp.int32, BATCH, None)}
    result = layout.struct((batch, seq, config.vocab), param_dtype, BATCH, None, "tensor")
    return forward, (params, data), jit_options(layout, donate=(), results=result)


def decode_step(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    context: int = 2048,
    param_dtype: DTypeLike = "bfloat16",
) -> Program:
    """One token for every sequence: `(params, cache, batch) -> (cache, next tokens)`, the cache updated in place."""
    layout = Layout.of(mesh, axes=AXES)
    tree = weights(config, layout)

    def decode_step(params: Any, cache: Any, batch: Any) -> tuple[Any, jax.Array]:
        position = batch["position"]
        visible = jnp.arange(context) <= position
        x = embed(layout.gather(params["embedding"], tree["embedding"]), batch["tokens"][:, None], layout)
        x = layout.constrain(x, BATCH, None, None)

        def append(cached: jax.Array, new: jax.Array, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
            cached = jax.lax.dynamic_update_slice(cached, new[None], (layer, 0, position, 0, 0))
            return cached, jax.lax.dynamic_index_in_dim(cached, layer, keepdims=False)

        def body(carry: Any, xs: Any) -> tuple[Any, None]:
            x, keys, values = carry
            layer, w = xs
            w = layout.gather(w, layer_weights(tree))
            h = rms_norm(x, w["attention_norm"])
            q, k, v = project(h, w, position[None], config=config, layout=layout)
            keys, k = append(keys, k, layer)
            values, v = append(values, v, layer)
            h = attend(q, k, v, visible, layout) @ w["wo"]
            x = x + layout.constrain(h, BATCH, None, None)
            x = x + layout.constrain(swiglu(x, w, layout), BATCH, None, None)
            return (x, keys, values), None

        layers = (jnp.arange(config.layers), params["layers"])
        (x, keys, values), _ = jax.lax.scan(body, (x, cache["k"], cache["v"]), layers)
        predicted = project_out(x, params, tree, layout)
        return {"k": keys, "v": values}, jnp.argmax(predicted[:, 0], axis=-1).astype(jnp.int32)

    shape = (config.layers, batch, context, config.kv_heads * key_copies(config, layout), config.head_dim)
    cache = {name: layout.struct(shape, param_dtype, None, BATCH, None, "tensor", None) for name in ("k", "v")}
    tokens = layout.struct((batch,), jnp.int32, BATCH)
    args = (layout.params(tree, param_dtype), cache, {"tokens": tokens, "position": layout.struct((), jnp.int32)})
    return decode_step, args, jit_options(layout, donate=(1,), results=(cache, tokens))
