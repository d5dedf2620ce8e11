"""Vision Transformer (Dosovitskiy 2021), trained data-parallel and, where asked, tensor-parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.models.layers import BATCH, Remat, block, block_weights, cast, checkpointed, cross_entropy, layer_norm
from meshcast.models.program import Program, adamw_program
from meshcast.models.sharding import Layout, Weight

AXES = ("data", "tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The sizes of a model; the feed-forward width is four times the model's."""

    layers: int
    dim: int
    heads: int
    patch: int = 16
    image: int = 224
    classes: int = 1000


TINY = Config(layers=2, dim=64, heads=4, patch=8, image=32, classes=16)
BASE_16 = Config(layers=12, dim=768, heads=12)
LARGE_16 = Config(layers=24, dim=1024, heads=16)


def weights(config: Config, layout: Layout) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    layout.require(config.heads, "tensor", "attention heads")
    layer = block_weights(config.dim, 4 * config.dim)
    return {
        "patch": Weight((config.patch, config.patch, 3, config.dim)),
        "patch_bias": Weight((config.dim,)),
        "class_token": Weight((1, 1, config.dim)),
        "positions": Weight(((config.image // config.patch) ** 2 + 1, config.dim)),
        "layers": {name: weight.stacked(config.layers) for name, weight in layer.items()},
        "norm_scale": Weight((config.dim,)),
        "norm_bias": Weight((config.dim,)),
        "head": Weight((config.dim, config.classes)),
        "head_bias": Weight((config.classes,)),
    }


def train_step(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    remat: Remat = "none",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> Program:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = Layout.of(mesh, axes=AXES)

    def loss(params: Any, batch: Any) -> jax.Array:
        params = cast(params, compute_dtype)
        x = jax.lax.conv_general_dilated(
            batch["images"].astype(compute_dtype),
            params["patch"],
            window_strides=(config.patch, config.patch),
            padding="VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = x.reshape(x.shape[0], -1, config.dim) + params["patch_bias"]
        token = jnp.broadcast_to(params["class_token"], (x.shape[0], 1, config.dim))
        x = layout.constrain(jnp.concatenate([token, x], axis=1) + params["positions"], BATCH, None, None)

        def body(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
            return block(x, w, layout=layout, heads=config.heads, epsilon=1e-6), None

        x, _ = jax.lax.scan(checkpointed(body, remat, layout), x, params["layers"])
        x = layer_norm(x[:, 0], params["norm_scale"], params["norm_bias"], epsilon=1e-6)
        return cross_entropy(x @ params["head"] + params["head_bias"], batch["labels"])

    params = layout.params(weights(config, layout), param_dtype)
    data = {
        "images": layout.struct((batch, config.image, config.image, 3), jnp.float32, BATCH),
        "labels": layout.struct((batch,), jnp.int32, BATCH),
    }
    return adamw_program(layout, loss, params, data)
