"""EfficientNet (Tan and Le 2019), NHWC, batch norm in training mode, SGD, data-parallel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.layers.image_layers import (
    Normalise,
    Units,
    classifier_step,
    excited,
    images_forward,
    squeeze_weights,
    unit_weights,
)
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.efficientnet import HEAD, EfficientnetConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

_SQUEEZE = 4  # times narrower than what comes into a block


def weights(config: EfficientnetConfig) -> dict[str, Any]:
    """Every parameter's shape; replicated, as data parallelism has it."""
    inputs = config.stem
    stages = []
    for stage, (expansion, kernel, _, plain, count) in enumerate(config.stages):
        outputs, blocks = config.channels(plain), []
        for _ in range(config.blocks(count)):
            inner = inputs * expansion
            if config.fused(stage):
                narrowed = {"project": unit_weights(1, inner, outputs)} if expansion > 1 else {}
                blocks.append({"fused": unit_weights(kernel, inputs, inner if narrowed else outputs)} | narrowed)
                inputs = outputs
                continue
            block: dict[str, Any] = {"expand": unit_weights(1, inputs, inner)} if expansion > 1 else {}
            squeezed = (inner if config.wide_squeeze else inputs) // _SQUEEZE
            block |= {"each": unit_weights(kernel, 1, inner), "squeeze": squeeze_weights(inner, max(1, squeezed))}
            blocks.append(block | {"project": unit_weights(1, inner, outputs)})
            inputs = outputs
        stages.append(blocks)
    last = config.channels(HEAD)
    head = {"kernel": ShardedWeight((last, config.classes)), "bias": ShardedWeight((config.classes,))}
    return {
        "stem": unit_weights(3, 3, config.stem),
        "stages": stages,
        "last": unit_weights(1, inputs, last),
        "head": head,
    }


def network(
    params: dict[str, Any], images: jax.Array, layout: MeshLayout, normalise: Normalise, *, config: EfficientnetConfig
) -> tuple[jax.Array, list[Any]]:
    """Logits, and what every normalisation saw, in order; without stochastic depth and dropout."""
    unit = Units(layout, normalise)
    x = jax.nn.silu(unit(images, params["stem"], 2))
    for (_, _, first_stride, _, _), blocks in zip(config.stages, params["stages"], strict=True):
        for index, block in enumerate(blocks):
            stride = 1 if index else first_stride
            if "fused" in block:
                h = jax.nn.silu(unit(x, block["fused"], stride))
                h = unit(h, block["project"]) if "project" in block else h
                x = x + h if index or x.shape == h.shape else h
                continue
            h = jax.nn.silu(unit(x, block["expand"])) if "expand" in block else x
            h = jax.nn.silu(unit(h, block["each"], stride))
            h = unit(excited(h, block["squeeze"], jax.nn.silu), block["project"])
            x = x + h if index else h
    x = jnp.mean(jax.nn.silu(unit(x, params["last"])), axis=(1, 2))
    return x @ params["head"]["kernel"] + params["head"]["bias"], unit.seen


def train_step(
    config: EfficientnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    accumulate: int = 1,
    sync_batch_norm: bool = False,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    return classifier_step(
        weights(config), partial(network, config=config), (config.image, config.image, 3), mesh=mesh, batch=batch,
        accumulate=accumulate,
        sync_batch_norm=sync_batch_norm, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: EfficientnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Classification: `(params, batch) -> class scores`, normalised by running statistics that are parameters here."""
    image = (config.image, config.image, 3)
    return images_forward(
        weights(config), partial(network, config=config), image, mesh=mesh, batch=batch, param_dtype=param_dtype
    )
