"""Wan (2025): a transformer over a video's patches and a text, trained by flow matching; data, FSDP, context, tensor-parallel.

A layer is self-attention over all patches, cross-attention to the text, and a feed-forward half. What the time step comes to is
projected once for all layers, and each adds an offset of its own to it before it scales and shifts norms. Latents and the
text's tokens come in as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.dit import modulated
from meshcast.zoo.frame import Fields, forward_program
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import feed_forward, through_layers
from meshcast.zoo.layers.diffusion import embed_time, time_weights
from meshcast.zoo.layers.modulated import half_weights, heads_of, merged
from meshcast.zoo.layers.pieces import BATCH, Remat, cast, layer_norm, rms_norm, rotary, stacked
from meshcast.zoo.layers.products import product, products
from meshcast.zoo.layers.saving import HEADS, kept
from meshcast.zoo.program import ModelProgram, adamw_program, microbatched
from meshcast.zoo.shapes.video import VideoConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "context", "tensor")
_PARTS = 6  # shift, scale and gate of either half
_THETA = 1e4


def weights(config: VideoConfig) -> dict[str, Any]:
    """Every parameter's shape and storage."""
    dim = config.dim
    layer = half_weights(dim, config.heads, config.ffn)
    # Norms of queries and keys span all heads, in both kinds of attention.
    layer |= {name: ShardedWeight((dim,)) for name in ("q_norm", "k_norm", "cross_q_norm", "cross_k_norm")}
    layer |= {f"cross_w{name}": ShardedWeight((dim, dim), ("fsdp", "tensor")) for name in "qkv"}
    layer |= {f"cross_b{name}": ShardedWeight((dim,), ("tensor",)) for name in "qkv"}
    layer |= {"cross_wo": ShardedWeight((dim, dim), ("tensor", "fsdp")), "cross_bo": ShardedWeight((dim,))}
    layer |= {"cross_scale": ShardedWeight((dim,)), "cross_bias": ShardedWeight((dim,))}
    layer |= {"offset": ShardedWeight((_PARTS, dim))}
    return {
        "patch": ShardedWeight((config.numbers, dim)),
        "patch_bias": ShardedWeight((dim,)),
        "words": time_weights(config.context, dim),
        "time": time_weights(config.frequencies, dim),
        "modulation": ShardedWeight((dim, _PARTS * dim), ("fsdp", None)),
        "modulation_bias": ShardedWeight((_PARTS * dim,)),
        "layers": stacked(layer, config.layers),
        "offset": ShardedWeight((2, dim)),
        "head": ShardedWeight((dim, config.numbers)),
        "head_bias": ShardedWeight((config.numbers,)),
    }


def _crossed(h: jax.Array, text: jax.Array, w: Any, *, config: VideoConfig, layout: MeshLayout) -> jax.Array:
    """Attention of normalised activations to the text, with the projection's bias."""

    def headed(x: jax.Array) -> jax.Array:
        x = layout.constrain(x, BATCH, "context", "tensor")
        return x.reshape(*x.shape[:2], config.heads, -1)

    over = (BATCH, "context", None)
    q = product("bsd,de->bse", h, w["cross_wq"], layout, over=over) + w["cross_bq"]
    k, v = products("bsd,de->bse", text, (w["cross_wk"], w["cross_wv"]), layout, over=over)
    q, k, v = kept(q, HEADS), kept(k, HEADS), kept(v, HEADS)
    q, k = rms_norm(q, w["cross_q_norm"]), rms_norm(k + w["cross_bk"], w["cross_k_norm"])
    y = attend(headed(q), headed(k), headed(v + w["cross_bv"]), layout=layout, causal=False)
    y = layout.constrain(y.reshape(h.shape), BATCH, "context", "tensor")
    made = product("bse,ed->bsd", y, w["cross_wo"], layout, over=(BATCH, "context", "tensor"))
    biased: jax.Array = made + w["cross_bo"]
    return biased


def velocity(params: Any, data: Any, *, config: VideoConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """The predicted way from the video to the noise (B, tokens, numbers) of noisy latents."""
    tree = weights(config)
    vector = embed_time(data["times"], params["time"])
    table = layout.gather(params["modulation"], tree["modulation"])
    told = (jax.nn.silu(vector) @ table + params["modulation_bias"]).reshape(-1, _PARTS, config.dim)
    text = data["text"] @ params["words"]["time1"] + params["words"]["time1_bias"]
    text = jax.nn.gelu(text, approximate=True) @ params["words"]["time2"] + params["words"]["time2_bias"]
    text = layout.constrain(text, BATCH, "context", None)
    x = layout.constrain(data["images"] @ params["patch"] + params["patch_bias"], *layout.residual)
    places = jnp.arange(config.tokens)

    def body(x: jax.Array, w: Any) -> jax.Array:
        parts = [(told + w["offset"])[:, place] for place in range(_PARTS)]
        h = layout.whole(modulated(x, parts[0], parts[1]))
        q, k, v = heads_of(h, w, layout=layout, heads=config.heads)
        q, k = (rms_norm(y.reshape(h.shape), w[f"{name}_norm"]).reshape(q.shape) for name, y in (("q", q), ("k", k)))
        q, k = (rotary(y, places, theta=_THETA) for y in (q, k))
        y = kept(merged(attend(q, k, v, layout=layout, causal=False), w, layout=layout) + w["bo"])
        x = kept(layout.constrain(x + parts[2][:, None] * y, *layout.residual))
        h = layout.whole(layer_norm(x, w["cross_scale"], w["cross_bias"]))
        x = kept(layout.constrain(x + _crossed(h, text, w, config=config, layout=layout), *layout.residual))
        h = layout.whole(modulated(x, parts[3], parts[4]))
        h = kept(feed_forward(h, w, layout=layout, activation="gelu") + w["b2"])
        return layout.constrain(x + parts[5][:, None] * h, *layout.residual)

    x = through_layers(body, x, params["layers"], tree["layers"], remat=remat, layout=layout, marks=True)
    ends = vector[:, None] + params["offset"]
    made = modulated(x, ends[:, 0], ends[:, 1]) @ params["head"] + params["head_bias"]
    return layout.constrain(made, BATCH, "context", None)


def _fields(config: VideoConfig, batch: int, dtype: DTypeLike) -> Fields:
    return {
        "images": ((batch, config.tokens, config.numbers), dtype),
        "text": ((batch, config.words, config.context), dtype),
        "times": ((batch,), jnp.float32),
    }


def train_step(
    config: VideoConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 1,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "none",
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step of flow matching: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = _layout(config, mesh, attention, products)

    def loss(params: Any, batch: Any) -> jax.Array:
        share = batch["times"][:, None, None]
        noisy = ((1 - share) * batch["images"] + share * batch["noise"]).astype(compute_dtype)
        told = {**batch, "images": noisy, "text": batch["text"].astype(compute_dtype)}
        found = velocity(cast(params, compute_dtype), told, config=config, layout=layout, remat=remat)
        return jnp.mean(jnp.square(found.astype(jnp.float32) - (batch["noise"] - batch["images"])))

    fields = _fields(config, batch, jnp.float32)
    data = microbatched(layout, accumulate, **fields, noise=fields["images"])
    params = layout.params(weights(config), param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero)


def forward(
    config: VideoConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 1,
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One denoising step: `(params, batch) -> velocity`."""
    layout = _layout(config, mesh, attention, products)
    score = partial(velocity, config=config, layout=layout, remat="autodiff")
    fields = _fields(config, batch, param_dtype)
    result = layout.struct(fields["images"][0], param_dtype, BATCH)
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)


def _layout(config: VideoConfig, mesh: Mapping[str, int] | None, attention: str, products: str) -> MeshLayout:
    layout = MeshLayout.of(mesh, axes=AXES, attention=attention, products=products)
    layout.require(config.heads, "tensor", "attention heads")
    for count, what in ((config.tokens, "patches"), (config.words, "words")):
        layout.require(count, "context", what)
    return layout
