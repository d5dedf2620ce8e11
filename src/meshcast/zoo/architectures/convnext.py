"""ConvNeXt (Liu 2022), NHWC, layer norms, AdamW, data-parallel: training step and forward pass; without stochastic depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.frame import forward_program, supervised_program
from meshcast.zoo.layers.image_layers import convolution
from meshcast.zoo.layers.pieces import BATCH, layer_norm
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.convnext import ConvnextConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

AXES = ("data", "fsdp")
_KERNEL, _EPSILON = 7, 1e-6


def _norm(width: int) -> dict[str, ShardedWeight]:
    return {"scale": ShardedWeight((width,)), "bias": ShardedWeight((width,))}


def _filter(side: int, inputs: int, outputs: int) -> dict[str, ShardedWeight]:
    return {"kernel": ShardedWeight((side, side, inputs, outputs)), "offset": ShardedWeight((outputs,))}


def weights(config: ConvnextConfig) -> dict[str, Any]:
    """Every parameter's shape and storage."""
    stages, inputs = [], 3
    for place, (count, width) in enumerate(zip(config.blocks, config.widths, strict=True)):
        block = {
            "each": _filter(_KERNEL, 1, width),
            "norm": _norm(width),
            "up": ShardedWeight((width, 4 * width), (None, "fsdp")),
            "up_bias": ShardedWeight((4 * width,)),
            "down": ShardedWeight((4 * width, width), ("fsdp", None)),
            "down_bias": ShardedWeight((width,)),
            "scale": ShardedWeight((width,)),
        }
        # The stem is normalised behind its convolution, what halves the image later before it.
        halve = {"norm": _norm(inputs if place else width), "halve": _filter(2 if place else 4, inputs, width)}
        stages.append({**halve, "blocks": [block] * count})
        inputs = width
    return {
        "stages": stages,
        "norm": _norm(inputs),
        "head": ShardedWeight((inputs, config.classes)),
        "head_bias": ShardedWeight((config.classes,)),
    }


def _normed(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    return layer_norm(x, w["scale"], w["bias"], epsilon=_EPSILON)


def logits(params: Any, images: jax.Array, *, config: ConvnextConfig, layout: MeshLayout) -> jax.Array:
    """Class scores (B, classes) of images."""
    params = layout.gather(params, weights(config))
    x = images
    for place, stage in enumerate(params["stages"]):
        if place:
            x = _normed(x, stage["norm"])
        side = stage["halve"]["kernel"].shape[0]
        x = convolution(x, stage["halve"], side, padded=False) + stage["halve"]["offset"]
        x = x if place else _normed(x, stage["norm"])
        for w in stage["blocks"]:
            h = convolution(layout.constrain(x, BATCH, None, None, None), w["each"], 1) + w["each"]["offset"]
            h = jax.nn.gelu(_normed(h, w["norm"]) @ w["up"] + w["up_bias"], approximate=False)
            x = x + w["scale"] * (h @ w["down"] + w["down_bias"])
    x = _normed(jnp.mean(x, axis=(1, 2)), params["norm"])
    return layout.constrain(x @ params["head"] + params["head_bias"], BATCH, None)


def train_step(
    config: ConvnextConfig,
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
    config: ConvnextConfig,
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
