"""Vision Transformer (Dosovitskiy 2021), data, FSDP and tensor-parallel: training step and forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import forward_program, layout_for_heads, supervised_program
from meshcast.zoo.layers.attention import AttentionWord, attend
from meshcast.zoo.layers.blocks import block, block_weights, through_layers
from meshcast.zoo.layers.pieces import BATCH, Remat, layer_norm, stacked
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.vit import VitConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp", "tensor")


def weights(config: VitConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    return {
        "patch": ShardedWeight((config.patch, config.patch, 3, config.dim)),
        "patch_bias": ShardedWeight((config.dim,)),
        "class_token": ShardedWeight((1, 1, config.dim)),
        "positions": ShardedWeight(((config.image // config.patch) ** 2 + 1, config.dim)),
        "layers": stacked(block_weights(config.dim, config.hidden), config.layers),
        "norm_scale": ShardedWeight((config.dim,)),
        "norm_bias": ShardedWeight((config.dim,)),
        "head": ShardedWeight((config.dim, config.classes)),
        "head_bias": ShardedWeight((config.classes,)),
    }


def patches(images: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """One vector (B, patches, dim) per square of an image (B, H, W, channels)."""
    size = kernel.shape[0]
    x = jax.lax.conv_general_dilated(
        images, kernel, window_strides=(size, size), padding="VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return x.reshape(x.shape[0], -1, kernel.shape[-1]) + bias


def logits(params: Any, images: jax.Array, *, config: VitConfig, layout: MeshLayout, remat: Remat) -> jax.Array:
    """Class scores (B, classes) of images."""
    x = patches(images, params["patch"], params["patch_bias"])
    token = jnp.broadcast_to(params["class_token"], (x.shape[0], 1, config.dim))
    x = layout.constrain(jnp.concatenate([token, x], axis=1) + params["positions"], BATCH, None, None)
    attending = partial(attend, layout=layout, causal=False)
    step = partial(block, layout=layout, heads=config.heads, attend=attending, epsilon=1e-6)
    x = through_layers(step, x, params["layers"], weights(config)["layers"], remat=remat, layout=layout)
    x = layer_norm(x[:, 0], params["norm_scale"], params["norm_bias"], epsilon=1e-6)
    return layout.constrain(x @ params["head"] + params["head_bias"], BATCH, None)


def train_step(
    config: VitConfig,
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
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = layout_for_heads(mesh, AXES, config.heads, attention, products)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["images"].astype(compute_dtype), config=config, layout=layout, remat=remat)

    images = ((batch, config.image, config.image, 3), jnp.float32)
    return supervised_program(
        layout, weights(config), score, {"images": images, "labels": ((batch,), jnp.int32)}, labels="labels",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: VitConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    attention: AttentionWord = "auto",
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Classification: `(params, batch) -> class scores`."""
    layout = layout_for_heads(mesh, AXES, config.heads, attention)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["images"], config=config, layout=layout, remat="autodiff")

    images = ((batch, config.image, config.image, 3), param_dtype)
    result = layout.struct((batch, config.classes), param_dtype, BATCH)
    return forward_program(layout, weights(config), score, {"images": images}, result, param_dtype=param_dtype)
