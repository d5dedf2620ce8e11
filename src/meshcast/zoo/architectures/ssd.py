"""SSD300 (Liu 2016) on a ResNet, as NVIDIA's examples and MLPerf's reference train it: NHWC, SGD, data-parallel.

Boxes are matched where images are loaded, so a batch has a box and a class for each default box. Of the losses of boxes
without an object three times as many count as there are with one, the largest: found by sorting twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.resnet import trunk, trunk_weights
from meshcast.zoo.layers.image_layers import Normalise, Units, convolution, images_forward, sgd_program, unit_weights
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.ssd import BOXES, FURTHER, SsdConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

_NEGATIVES = 3  # boxes without an object that count, for each with one


def _plain(inputs: int, outputs: int) -> dict[str, ShardedWeight]:
    """A 3x3 convolution with a bias and no norm."""
    return {"kernel": ShardedWeight((3, 3, inputs, outputs)), "offset": ShardedWeight((outputs,))}


def weights(config: SsdConfig) -> dict[str, Any]:
    """Every parameter's shape; replicated, as data parallelism has it."""
    first, channels = trunk_weights(config.trunk)
    maps, further, inputs = [channels], [], channels
    for narrow, outputs, _, _ in FURTHER:
        further.append([unit_weights(1, inputs, narrow), unit_weights(3, narrow, outputs)])
        maps.append(outputs)
        inputs = outputs
    heads = [
        {"boxes": _plain(each, 4 * count), "classes": _plain(each, config.classes * count)}
        for each, count in zip(maps, BOXES, strict=True)
    ]
    return {"trunk": first, "further": further, "heads": heads}


def network(
    params: dict[str, Any], images: jax.Array, layout: MeshLayout, normalise: Normalise, *, config: SsdConfig
) -> tuple[dict[str, jax.Array], list[Any]]:
    """Boxes (B, boxes, 4) and classes (B, boxes, classes) of all maps, and what every normalisation saw, in order."""
    unit = Units(layout, normalise)
    x = trunk(params["trunk"], images, unit, bottleneck=config.bottleneck, unstrided=2)[-1]
    maps = [x]
    for (narrow, wide), (_, _, stride, padded) in zip(params["further"], FURTHER, strict=True):
        x = jax.nn.relu(unit(jax.nn.relu(unit(x, narrow)), wide, stride, padded=padded))
        maps.append(x)

    def all_maps(name: str, numbers: int) -> jax.Array:
        found = [
            (convolution(x, head[name], 1) + head[name]["offset"]).reshape(x.shape[0], -1, numbers)
            for x, head in zip(maps, params["heads"], strict=True)
        ]
        return jnp.concatenate(found, axis=1)

    return {"boxes": all_maps("boxes", 4), "classes": all_maps("classes", config.classes)}, unit.seen


def detection_loss(found: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Smooth L1 of boxes with an object, and cross-entropies of these and of the worst others, for each of the former."""
    there = batch["labels"] > 0
    count = jnp.sum(there, axis=1)
    off = jnp.abs(found["boxes"].astype(jnp.float32) - batch["boxes"])
    places = jnp.sum(jnp.where(off < 1, 0.5 * jnp.square(off), off - 0.5), axis=-1)
    scores = jax.nn.log_softmax(found["classes"].astype(jnp.float32), axis=-1)
    entropies = -jnp.take_along_axis(scores, batch["labels"][..., None], axis=-1)[..., 0]
    order = jnp.argsort(-jnp.where(there, 0.0, jax.lax.stop_gradient(entropies)), axis=1)
    worst = jnp.argsort(order, axis=1) < jnp.minimum(_NEGATIVES * count, there.shape[1])[:, None]
    total = jnp.sum(places * there, axis=1) + jnp.sum(entropies * (there | worst), axis=1)
    return jnp.mean(total * (count > 0) / jnp.maximum(count, 1))


def box_count(config: SsdConfig) -> int:
    """Default boxes of an image."""
    return sum(count * each**2 for count, each in zip(BOXES, config.maps, strict=True))


def train_step(
    config: SsdConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    accumulate: int = 1,
    sync_batch_norm: bool = False,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    boxes = box_count(config)
    fields = {
        "images": ((batch, config.image, config.image, 3), jnp.float32),
        "boxes": ((batch, boxes, 4), jnp.float32),
        "labels": ((batch, boxes), jnp.int32),
    }
    return sgd_program(
        weights(config), partial(network, config=config), detection_loss, fields, mesh=mesh, accumulate=accumulate,
        sync_batch_norm=sync_batch_norm, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: SsdConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 32,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Detection: `(params, batch) -> boxes and classes`, before boxes that overlap are left out."""
    image = (config.image, config.image, 3)
    return images_forward(
        weights(config), partial(network, config=config), image, mesh=mesh, batch=batch, param_dtype=param_dtype
    )
