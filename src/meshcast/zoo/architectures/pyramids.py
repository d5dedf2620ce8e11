"""Detectors on a pyramid of maps: Mask R-CNN (He 2017) and RetinaNet (Lin 2017), NHWC, SGD, data-parallel.

As MLPerf's references and NVIDIA's examples train them: norms of the trunk are fixed, its stem and first stage do not learn.
What boxes, regions and masks should be is found where images are loaded. Of a map's boxes those count that no better one of the
same map overlaps by 0.7; libraries go through them one by one, which leaves a few more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.zoo.architectures.resnet import trunk, trunk_weights
from meshcast.zoo.layers.image_layers import Normalise, Units, convolution, images_forward, sgd_program
from meshcast.zoo.layers.regions import chosen, region_weights, regions_found
from meshcast.zoo.program import ModelProgram
from meshcast.zoo.shapes.pyramids import PyramidConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight

_HEAD_LAYERS = 4
_FOCUS = 2.0  # of the focal loss (Lin 2017, section 3.2)


def plain(kernel: int, inputs: int, outputs: int) -> dict[str, ShardedWeight]:
    """A convolution with a bias and no norm."""
    return {"kernel": ShardedWeight((kernel, kernel, inputs, outputs)), "offset": ShardedWeight((outputs,))}


def biased(x: jax.Array, w: dict[str, jax.Array], stride: int = 1) -> jax.Array:
    """That convolution."""
    return convolution(x, w, stride) + w["offset"]


def weights(config: PyramidConfig) -> dict[str, Any]:
    """Every parameter's shape; replicated, as data parallelism has it."""
    first, _ = trunk_weights(config.trunk)
    wide, stages = config.channels, range(4) if config.masks else range(1, 4)
    tree: dict[str, Any] = {
        "trunk": first,
        "across": [plain(1, config.trunk.outputs(stage), wide) for stage in stages],
        "smooth": [plain(3, wide, wide) for _ in stages],
    }
    if config.masks:
        tree |= {
            "shared": plain(3, wide, wide),
            "scores": plain(1, wide, config.anchors),
            "boxes": plain(1, wide, 4 * config.anchors),
        }
        return tree | region_weights(config)
    tree["coarser"] = [plain(3, wide, wide), plain(3, wide, wide)]
    for name, numbers in (("classes", config.classes), ("boxes", 4)):
        layers = [plain(3, wide, wide) for _ in range(_HEAD_LAYERS)]
        tree[name] = {"layers": layers, "last": plain(3, wide, numbers * config.anchors)}
    return tree


def pyramid(params: dict[str, Any], images: jax.Array, unit: Units, config: PyramidConfig) -> list[jax.Array]:
    """The maps, from the finest to the coarsest, each as wide as `channels`."""
    stages = trunk(params["trunk"], images, unit, bottleneck=True, frozen=1)
    stages = stages if config.masks else stages[1:]
    found: list[jax.Array] = []
    for x, across in zip(reversed(stages), reversed(params["across"]), strict=True):
        x = biased(x, across)
        found.append(x + _doubled(found[-1])[:, : x.shape[1], : x.shape[2]] if found else x)
    maps = [biased(x, w) for x, w in zip(reversed(found), params["smooth"], strict=True)]
    if config.masks:
        return [*maps, maps[-1][:, ::2, ::2]]
    sixth = biased(maps[-1], params["coarser"][0], 2)
    return [*maps, sixth, biased(jax.nn.relu(sixth), params["coarser"][1], 2)]


def _doubled(x: jax.Array) -> jax.Array:
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


def network(
    params: dict[str, Any], images: jax.Array, layout: MeshLayout, normalise: Normalise, *, config: PyramidConfig
) -> tuple[dict[str, jax.Array], list[Any]]:
    """What is found in images; norms see nothing, for they are fixed."""
    del normalise
    unit = Units(layout, lambda x, w: (x * w["scale"] + w["bias"], ()))
    maps = [layout.constrain(x, "data") for x in pyramid(params, images, unit, config)]
    if not config.masks:
        return {name: _everywhere(maps, params[name], config) for name in ("classes", "boxes")}, []
    shared = [jax.nn.relu(biased(x, params["shared"])) for x in maps]

    def proposals(name: str, numbers: int) -> list[jax.Array]:
        return [biased(x, params[name]).reshape(x.shape[0], -1, numbers) for x in shared]

    scores, boxes = proposals("scores", 1), proposals("boxes", 4)
    regions = jax.lax.stop_gradient(chosen(scores, boxes, config))
    found = regions_found(params, maps, regions, config=config)
    return found | {"scores": jnp.concatenate(scores, axis=1), "boxes": jnp.concatenate(boxes, axis=1)}, []


def _everywhere(maps: list[jax.Array], head: dict[str, Any], config: PyramidConfig) -> jax.Array:
    """RetinaNet's classes or boxes (B, boxes, numbers) of all maps."""
    found = []
    for x in maps:
        for w in head["layers"]:
            x = jax.nn.relu(biased(x, w))
        made = biased(x, head["last"])
        found.append(made.reshape(x.shape[0], -1, made.shape[-1] // config.anchors))
    return jnp.concatenate(found, axis=1)


def _near(off: jax.Array) -> jax.Array:
    """Smooth L1."""
    off = jnp.abs(off.astype(jnp.float32))
    return jnp.where(off < 1, 0.5 * jnp.square(off), off - 0.5)


def _unlikely(scores: jax.Array, there: jax.Array) -> jax.Array:
    """Cross-entropies of yes or no, by their logits."""
    scores = scores.astype(jnp.float32)
    return jnp.maximum(scores, 0) - scores * there + jnp.log1p(jnp.exp(-jnp.abs(scores)))


def focal_loss(found: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """RetinaNet's: -(1 - p)^2 log p of every class of every box, for each box with an object (Lin 2017, equation 5)."""
    labels = batch["labels"]
    there = labels > 0
    wanted = jax.nn.one_hot(labels, found["classes"].shape[-1], dtype=jnp.float32) * there[..., None]
    entropies = _unlikely(found["classes"], wanted)
    focus = (1 - jnp.exp(-entropies)) ** _FOCUS
    places = jnp.sum(_near(found["boxes"] - batch["boxes"]), axis=-1) * there
    return (jnp.sum(focus * entropies) + jnp.sum(places)) / jnp.maximum(jnp.sum(there), 1)


def mask_loss(found: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Mask R-CNN's five: objects and boxes of proposals, classes and boxes of regions, and masks."""
    there = batch["labels"] > 0
    loss = jnp.mean(_unlikely(found["scores"][..., 0], there))
    loss += jnp.mean(jnp.sum(_near(found["boxes"] - batch["boxes"]), axis=-1) * there)
    kinds = batch["region_labels"]
    scores = jax.nn.log_softmax(found["region_classes"].astype(jnp.float32), axis=-1)
    loss -= jnp.mean(jnp.take_along_axis(scores, kinds[..., None], axis=-1))
    boxes = found["region_boxes"].reshape(*kinds.shape, -1, 4)
    own = jnp.take_along_axis(boxes, kinds[..., None, None], axis=2)[:, :, 0]
    loss += jnp.mean(jnp.sum(_near(own - batch["region_boxes"]), axis=-1) * (kinds > 0))
    masked = kinds[:, : found["masks"].shape[1], None, None, None]
    masks = jnp.take_along_axis(found["masks"], masked, axis=-1)[..., 0]
    return loss + jnp.mean(_unlikely(masks, batch["masks"]))


def train_step(
    config: PyramidConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 12,
    accumulate: int = 1,
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """One SGD step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    fields: dict[str, tuple[tuple[int, ...], Any]] = {
        "images": ((batch, config.height, config.image, 3), jnp.float32),
        "boxes": ((batch, config.boxes, 4), jnp.float32),
        "labels": ((batch, config.boxes), jnp.int32),
    }
    if config.masks:
        side = 4 * 7
        fields |= {
            "region_boxes": ((batch, config.regions, 4), jnp.float32),
            "region_labels": ((batch, config.regions), jnp.int32),
            "masks": ((batch, config.regions // 4, side, side), jnp.float32),
        }
    loss = mask_loss if config.masks else focal_loss
    return sgd_program(
        weights(config), partial(network, config=config), loss, fields, mesh=mesh, accumulate=accumulate,
        sync_batch_norm=False, param_dtype=param_dtype, compute_dtype=compute_dtype,
    )  # fmt: skip


def forward(
    config: PyramidConfig,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    param_dtype: DTypeLike = "bfloat16",
) -> ModelProgram:
    """Detection: `(params, batch) -> what is found`, before boxes of one object are left out."""
    image = (config.height, config.image, 3)
    return images_forward(
        weights(config), partial(network, config=config), image, mesh=mesh, batch=batch, param_dtype=param_dtype
    )
