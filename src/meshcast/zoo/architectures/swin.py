"""Swin Transformer (Liu 2021), AdamW, data and FSDP parallel: training step and forward pass; without stochastic depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.vit import patches
from meshcast.zoo.frame import forward_program, supervised_program
from meshcast.zoo.layers.blocks import block_weights, feed_forward
from meshcast.zoo.layers.pieces import BATCH, layer_norm, softmax
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.swin import SwinConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp")


def _norm(width: int) -> dict[str, ShardedWeight]:
    return {"scale": ShardedWeight((width,)), "bias": ShardedWeight((width,))}


def weights(config: SwinConfig) -> dict[str, Any]:
    """Every parameter's shape and storage; each layer has a bias for every offset between two places of a window."""
    stages, dim = [], config.dim
    for place, (count, heads) in enumerate(zip(config.blocks, config.heads, strict=True)):
        layer = block_weights(dim, 4 * dim) | {"offsets": ShardedWeight(((2 * config.window - 1) ** 2, heads))}
        stage: dict[str, Any] = {"layers": [layer] * count}
        if place < len(config.blocks) - 1:
            stage |= {"norm": _norm(4 * dim), "halve": ShardedWeight((4 * dim, 2 * dim), (None, "fsdp"))}
            dim *= 2
        stages.append(stage)
    return {
        "patch": ShardedWeight((config.patch, config.patch, 3, config.dim)),
        "patch_bias": ShardedWeight((config.dim,)),
        "patch_norm": _norm(config.dim),
        "stages": stages,
        "norm": _norm(dim),
        "head": ShardedWeight((dim, config.classes)),
        "head_bias": ShardedWeight((config.classes,)),
    }


def _offsets(window: int) -> jax.Array:
    """Which row of the table two places of a window have, (window^2, window^2)."""
    row, column = jnp.divmod(jnp.arange(window * window), window)
    down, right = (axis[:, None] - axis + window - 1 for axis in (row, column))
    return down * (2 * window - 1) + right


def _shown(side: int, window: int, shift: int) -> jax.Array:
    """Which places of each window see each other, (windows, 1, window^2, window^2): after a shift some lie at other edges."""
    region = jnp.searchsorted(jnp.array([side - window, side - shift]), jnp.arange(side), side="right")
    regions = _windows((region[:, None] * 3 + region)[None, :, :, None], window)[..., 0]
    return (regions[:, :, None] == regions[:, None, :])[:, None]


def _windows(x: jax.Array, window: int) -> jax.Array:
    """(B, H, W, C) as (B * windows, window^2, C)."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // window, window, width // window, window, channels)
    return x.swapaxes(2, 3).reshape(-1, window * window, channels)


def _layer(
    x: jax.Array, w: dict[str, jax.Array], *, window: int, shift: int, heads: int, layout: MeshLayout
) -> jax.Array:
    """A layer over (B, H, W, dim) with its residual sums."""
    batch, side, _, dim = x.shape
    h = layer_norm(x, w["norm1_scale"], w["norm1_bias"])
    h = _windows(jnp.roll(h, (-shift, -shift), (1, 2)) if shift else h, window)
    qkv = (jnp.einsum("bsd,dce->bsce", h, w["wqkv"]) + w["bqkv"]).reshape(*h.shape[:2], 3, heads, dim // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bshd,bthd->bhst", q, k).astype(jnp.float32) * (dim // heads) ** -0.5
    scores = scores + w["offsets"][_offsets(window)].transpose(2, 0, 1).astype(jnp.float32)
    if shift:
        each = scores.reshape(batch, -1, *scores.shape[1:])
        scores = jnp.where(_shown(side, window, shift), each, -1e9).reshape(scores.shape)
    y = jnp.einsum("bhst,bthd->bshd", softmax(scores, v.dtype), v).reshape(h.shape)
    y = y @ w["wo"] + w["bo"]
    y = y.reshape(batch, side // window, side // window, window, window, dim).swapaxes(2, 3).reshape(x.shape)
    x = layout.constrain(x + (jnp.roll(y, (shift, shift), (1, 2)) if shift else y), BATCH, None, None, None)
    h = layer_norm(x, w["norm2_scale"], w["norm2_bias"]).reshape(batch, side * side, dim)
    h = feed_forward(h, w, layout=layout, activation="exact_gelu") + w["b2"]
    return layout.constrain(x + h.reshape(x.shape), BATCH, None, None, None)


def logits(params: Any, images: jax.Array, *, config: SwinConfig, layout: MeshLayout) -> jax.Array:
    """Class scores (B, classes) of images."""
    params = layout.gather(params, weights(config))
    x = patches(images, params["patch"], params["patch_bias"])
    x = layer_norm(x, params["patch_norm"]["scale"], params["patch_norm"]["bias"])
    side = config.image // config.patch
    x = x.reshape(-1, side, side, config.dim)
    for heads, stage in zip(config.heads, params["stages"], strict=True):
        for place, w in enumerate(stage["layers"]):
            # A window as large as the image is not shifted.
            shift = config.window // 2 if place % 2 and x.shape[1] > config.window else 0
            x = _layer(x, w, window=config.window, shift=shift, heads=heads, layout=layout)
        if "halve" in stage:
            four = [x[:, down::2, right::2] for right in (0, 1) for down in (0, 1)]
            x = layer_norm(jnp.concatenate(four, axis=-1), stage["norm"]["scale"], stage["norm"]["bias"])
            x = x @ stage["halve"]
    x = jnp.mean(layer_norm(x, params["norm"]["scale"], params["norm"]["bias"]), axis=(1, 2))
    return layout.constrain(x @ params["head"] + params["head_bias"], BATCH, None)


def train_step(
    config: SwinConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    accumulate: int = 1,
    zero: int = 0,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["images"].astype(compute_dtype), config=config, layout=layout)

    images = ((batch, config.image, config.image, 3), jnp.float32)
    return supervised_program(
        layout, weights(config), score, {"images": images, "labels": ((batch,), jnp.int32)}, labels="labels",
        accumulate=accumulate, zero=zero, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: SwinConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Classification: `(params, batch) -> class scores`."""
    layout = MeshLayout.of(mesh, axes=AXES)

    def score(params: Any, batch: Any) -> jax.Array:
        return logits(params, batch["images"], config=config, layout=layout)

    images = ((batch, config.image, config.image, 3), param_dtype)
    result = layout.struct((batch, config.classes), param_dtype, BATCH)
    return forward_program(layout, weights(config), score, {"images": images}, result, param_dtype=param_dtype)
