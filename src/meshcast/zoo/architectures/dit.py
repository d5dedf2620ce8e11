"""DiT (Peebles 2023): a transformer over latent patches, modulated by time and class; data, FSDP, tensor-parallel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.vit import patches
from meshcast.zoo.frame import Fields, forward_program, layout_for_heads
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import block_weights, feed_forward, self_attention, through_layers
from meshcast.zoo.layers.diffusion import embed_time, noised, squared_error, time_weights
from meshcast.zoo.layers.pieces import BATCH, Remat, cast, stacked
from meshcast.zoo.program import ModelProgram, adamw_program, microbatched
from meshcast.zoo.shapes.dit import DitConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")


def weights(config: DitConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; positions are fixed waves, not learned."""
    dim = config.dim
    layer = {name: w for name, w in block_weights(dim, 4 * dim).items() if not name.startswith("norm")}
    layer |= {"modulation": ShardedWeight((dim, 6 * dim), ("fsdp", None)), "modulation_bias": ShardedWeight((6 * dim,))}
    return {
        "patch": ShardedWeight((config.patch, config.patch, config.channels, dim)),
        "patch_bias": ShardedWeight((dim,)),
        "time": time_weights(config.frequencies, dim),
        # One class more: the absent one of classifier-free guidance.
        "classes": ShardedWeight((config.classes + 1, dim)),
        "layers": stacked(layer, config.layers),
        "modulation": ShardedWeight((dim, 2 * dim)),
        "modulation_bias": ShardedWeight((2 * dim,)),
        "head": ShardedWeight((dim, config.outputs)),
        "head_bias": ShardedWeight((config.outputs,)),
    }


def waves(side: int, dim: int) -> jax.Array:
    """Fixed positions (side * side, dim): sines and cosines of the row and of the column."""
    frequency = 1e4 ** (-jnp.arange(dim // 4) / (dim // 4))
    angle = jnp.arange(side)[:, None] * frequency
    one = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
    rows, columns = jnp.repeat(one, side, axis=0), jnp.tile(one, (side, 1))
    return jnp.concatenate([rows, columns], axis=-1)


def modulated(x: jax.Array, shift: jax.Array, scale: jax.Array) -> jax.Array:
    """The layer norm without parameters of x (B, S, dim), scaled and shifted by vectors (B, dim)."""
    wide = x.astype(jnp.float32)
    wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + 1e-6)
    return wide.astype(x.dtype) * (1 + scale[:, None]) + shift[:, None]


def denoise(params: Any, data: Any, *, config: DitConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Predicted noise and variance (B, H, W, 2 * channels) of noisy latents."""
    side = config.image // config.patch
    x = patches(data["images"], params["patch"], params["patch_bias"])
    x = layout.constrain(x + waves(side, config.dim).astype(x.dtype), BATCH, None, None)
    labels = jnp.take(params["classes"], data["labels"], axis=0, mode="clip")
    condition = jax.nn.silu(embed_time(data["times"], params["time"]) + labels)

    attending = partial(attend, layout=layout, causal=False)

    def body(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
        parts = jnp.split(condition @ w["modulation"] + w["modulation_bias"], 6, axis=-1)
        h = layout.constrain(modulated(x, parts[0], parts[1]), BATCH, None, None)
        h = self_attention(h, w, layout=layout, heads=config.heads, attend=attending) + w["bo"]
        x = layout.constrain(x + parts[2][:, None] * h, BATCH, None, None)
        h = layout.constrain(modulated(x, parts[3], parts[4]), BATCH, None, None)
        h = feed_forward(h, w, layout=layout, activation="gelu") + w["b2"]
        return layout.constrain(x + parts[5][:, None] * h, BATCH, None, None)

    x = through_layers(body, x, params["layers"], weights(config)["layers"], remat=remat, layout=layout)
    shift, scale = jnp.split(condition @ params["modulation"] + params["modulation_bias"], 2, axis=-1)
    x = modulated(x, shift, scale) @ params["head"] + params["head_bias"]
    x = x.reshape(-1, side, side, config.patch, config.patch, 2 * config.channels).swapaxes(2, 3)
    return layout.constrain(x.reshape(-1, config.image, config.image, 2 * config.channels), BATCH, None, None, None)


def train_step(
    config: DitConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    accumulate: int = 1,
    zero: int = 0,
    remat: Remat = "autodiff",
    attention: AttentionWord = "auto",
    products: str = "plain",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step on noisy latents: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = layout_for_heads(mesh, AXES, config.heads, attention, products)

    def loss(params: Any, batch: Any) -> jax.Array:
        noisy = noised(batch["images"], batch["noise"], batch["times"]).astype(compute_dtype)
        predicted = denoise(
            cast(params, compute_dtype), {**batch, "images": noisy}, config=config, layout=layout, remat=remat
        )
        return squared_error(predicted[..., : config.channels], batch["noise"])

    images = ((batch, config.image, config.image, config.channels), jnp.float32)
    rows = ((batch,), jnp.float32)
    data = microbatched(layout, accumulate, images=images, noise=images, times=rows, labels=((batch,), jnp.int32))
    params = layout.params(weights(config), param_dtype)
    return adamw_program(layout, loss, params, data, accumulate=accumulate, zero=zero)


def forward(
    config: DitConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One denoising step: `(params, batch) -> predicted noise and variance`."""
    layout = layout_for_heads(mesh, AXES, config.heads, attention)
    score = partial(denoise, config=config, layout=layout, remat="autodiff")
    size = (batch, config.image, config.image)
    fields: Fields = {
        "images": ((*size, config.channels), param_dtype),
        "times": ((batch,), jnp.float32),
        "labels": ((batch,), jnp.int32),
    }
    result = layout.struct((*size, 2 * config.channels), param_dtype, BATCH)
    return forward_program(layout, weights(config), score, fields, result, param_dtype=param_dtype)
