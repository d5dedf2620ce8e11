"""ResNet (He 2016, stride on the 3x3 as in v1.5) and its kin, NHWC, batch norm in training mode, SGD, data-parallel."""

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
from meshcast.zoo.shapes.resnet import ResnetConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def trunk_weights(config: ResnetConfig) -> tuple[dict[str, Any], int]:
    """The stem's and the blocks' parameters, and how many channels come out."""
    inputs = config.width
    stages = []
    for stage, count in enumerate(config.blocks):
        width, outputs = config.inner(stage), config.outputs(stage)
        blocks = []
        for _ in range(count):
            kernels = [(3, inputs, width), (3, width, width)]
            if config.bottleneck:
                kernels = [(1, inputs, width), (3, width // config.groups, width), (1, width, outputs)]
            block: dict[str, Any] = {"units": [unit_weights(*kernel) for kernel in kernels]}
            block |= {"squeeze": squeeze_weights(outputs, outputs // config.squeeze)} if config.squeeze else {}
            blocks.append(block | ({"shortcut": unit_weights(1, inputs, outputs)} if inputs != outputs else {}))
            inputs = outputs
        stages.append(blocks)
    return {"stem": unit_weights(7, 3, config.width), "stages": stages}, inputs


def weights(config: ResnetConfig) -> dict[str, Any]:
    """Every parameter's shape; replicated, as data parallelism has it."""
    trunk, channels = trunk_weights(config)
    head = {"kernel": ShardedWeight((channels, config.classes)), "bias": ShardedWeight((config.classes,))}
    return trunk | {"head": head}


def trunk(
    params: dict[str, Any],
    images: jax.Array,
    unit: Units,
    *,
    bottleneck: bool,
    unstrided: int | None = None,
    frozen: int = 0,
) -> list[jax.Array]:
    """What every stage of blocks gives.

    The stage `unstrided` leaves the image as large as it is; the first `frozen` stages do not learn.
    """
    x = jax.nn.relu(unit(images, params["stem"], 2))
    window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = []
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            stride = 2 if stage not in (0, unstrided) and not index else 1
            strided = 1 if bottleneck else 0
            h = x
            for position, w in enumerate(block["units"]):
                h = unit(h, w, stride if position == strided else 1)
                h = jax.nn.relu(h) if position < len(block["units"]) - 1 else h
            h = excited(h, block["squeeze"]) if "squeeze" in block else h
            x = jax.nn.relu(h + (unit(x, block["shortcut"], stride) if "shortcut" in block else x))
        x = jax.lax.stop_gradient(x) if stage < frozen else x
        found.append(x)
    return found


def network(
    params: dict[str, Any], images: jax.Array, layout: MeshLayout, normalise: Normalise, *, config: ResnetConfig
) -> tuple[Any, Any]:
    """Logits, and what every normalisation saw, in order."""
    unit = Units(layout, normalise)
    x = jnp.mean(trunk(params, images, unit, bottleneck=config.bottleneck)[-1], axis=(1, 2))
    return x @ params["head"]["kernel"] + params["head"]["bias"], unit.seen


def train_step(
    config: ResnetConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 64,
    accumulate: int = 1,
    sync_batch_norm: bool = False,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    image = (config.image, config.image, 3)
    return classifier_step(
        weights(config), partial(network, config=config), image, mesh=mesh, batch=batch, accumulate=accumulate,
        sync_batch_norm=sync_batch_norm, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: ResnetConfig,
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
