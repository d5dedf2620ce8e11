"""BERT (Devlin 2019): an encoder trained to fill in masked tokens; data, FSDP and tensor-parallel.

Training has the masked-language head, whose output projection is the embedding; the forward pass has the pooler instead,
as the two are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import block, block_weights, through_layers
from meshcast.zoo.layers.pieces import BATCH, Remat, cast, cross_entropy, embed, layer_norm, stacked
from meshcast.zoo.program import ModelProgram, adamw_program, jit_options, microbatched
from meshcast.zoo.shapes.bert import BertConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")
_EPSILON = 1e-12


def encoder_weights(config: BertConfig) -> dict[str, Any]:
    """The encoder's parameters; per-layer weights are stacked on a leading axis."""
    return {
        "tokens": ShardedWeight((config.vocab, config.dim)),
        "positions": ShardedWeight((config.positions, config.dim)),
        "types": ShardedWeight((config.types, config.dim)),
        "norm_scale": ShardedWeight((config.dim,)),
        "norm_bias": ShardedWeight((config.dim,)),
        "layers": stacked(block_weights(config.dim, config.hidden), config.layers),
    }


def weights(config: BertConfig) -> dict[str, Any]:
    """The encoder and its pooler, which is how the model's size is published."""
    pooler = {"pooler": ShardedWeight((config.dim, config.dim)), "pooler_bias": ShardedWeight((config.dim,))}
    return encoder_weights(config) | pooler


def masked_language_weights(config: BertConfig) -> dict[str, Any]:
    """The encoder and the head that it is trained with."""
    return encoder_weights(config) | {
        "transform": ShardedWeight((config.dim, config.dim)),
        "transform_bias": ShardedWeight((config.dim,)),
        "transform_norm_scale": ShardedWeight((config.dim,)),
        "transform_norm_bias": ShardedWeight((config.dim,)),
        "head_bias": ShardedWeight((config.vocab,)),
    }


def encode(params: Any, data: Any, *, config: BertConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Activations (B, S, dim) of every token."""
    length = data["tokens"].shape[1]
    x = embed(params["tokens"], data["tokens"], layout) + params["positions"][:length]
    if config.one_hot_types:
        x = x + jax.nn.one_hot(data["types"], config.types, dtype=x.dtype) @ params["types"]
    else:
        x = x + jnp.take(params["types"], data["types"], axis=0, mode="clip")
    x = layout.constrain(layer_norm(x, params["norm_scale"], params["norm_bias"], epsilon=_EPSILON), BATCH, None, None)
    attending = partial(attend, layout=layout, causal=False)
    step = partial(block, layout=layout, heads=config.heads, attend=attending, epsilon=_EPSILON, post_norm=True)
    tree = encoder_weights(config)["layers"]
    return through_layers(step, x, params["layers"], tree, remat=remat, layout=layout)


def _layout(
    config: BertConfig, mesh: Mapping[str, int] | None, seq: int, attention: AttentionWord, products: str = "plain"
) -> MeshLayout:
    if seq > config.positions:
        raise UsageError(
            f"seq={seq} is longer than the model's {config.positions} positions",
            where="--set",
            fix=f"set positions={seq} too",
        )
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention, products=products)
    layout.require(config.heads, "tensor", "attention heads")
    return layout


def train_step(
    config: BertConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int | None = None,
    predictions: int | None = None,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "autodiff",
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step of masked-language modelling: `(params, opt_state, batch) -> (params, opt_state, loss)`.

    `predictions` tokens of every sequence are masked, 15 % of them by default; only these reach the head.
    """
    length = config.positions if seq is None else seq
    masked = max(1, round(0.15 * length)) if predictions is None else predictions
    layout = _layout(config, mesh, length, attention, products)

    def loss(params: Any, batch: Any) -> jax.Array:
        params = cast(params, compute_dtype)
        x = encode(params, batch, config=config, layout=layout, remat=remat)
        x = jnp.take_along_axis(x, batch["masked"][..., None], axis=1, mode="clip")
        x = layout.constrain(x, BATCH, None, None)
        x = jax.nn.gelu(x @ params["transform"] + params["transform_bias"], approximate=False)
        x = layer_norm(x, params["transform_norm_scale"], params["transform_norm_bias"], epsilon=_EPSILON)
        logits = jnp.einsum("bsd,vd->bsv", x, params["tokens"]) + params["head_bias"]
        return cross_entropy(logits, batch["targets"])

    rows, few = ((batch, length), jnp.int32), ((batch, masked), jnp.int32)
    data = microbatched(layout, accumulate, tokens=rows, types=rows, masked=few, targets=few)
    params = layout.params(masked_language_weights(config), param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero)


def forward(
    config: BertConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    seq: int | None = None,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Encoding: `(params, batch) -> (activations, pooled vector)`."""
    length = config.positions if seq is None else seq
    layout = _layout(config, mesh, length, attention)

    def forward(params: Any, batch: Any) -> tuple[jax.Array, jax.Array]:
        x = encode(params, batch, config=config, layout=layout, remat="autodiff")
        return x, jnp.tanh(x[:, 0] @ params["pooler"] + params["pooler_bias"])

    data = {name: layout.struct((batch, length), jnp.int32, BATCH) for name in ("tokens", "types")}
    results = (
        layout.struct((batch, length, config.dim), param_dtype, BATCH),
        layout.struct((batch, config.dim), param_dtype, BATCH),
    )
    params = layout.params(weights(config), param_dtype)
    return forward, (params, data), jit_options(layout, donate=(), results=results)
