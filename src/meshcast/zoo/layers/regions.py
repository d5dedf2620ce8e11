"""Mask R-CNN's second half (He 2017): regions chosen among what is proposed, cut out of the maps, classified and masked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshcast.zoo.layers.image_layers import convolution
from meshcast.zoo.shapes.pyramids import PyramidConfig
from meshcast.zoo.sharding import ShardedWeight

_SIDE = 7  # of what is cut out for classes; twice as many for masks
_SAMPLES = 2  # along each side of such a pixel
_HIDDEN = 1024
_MASK_LAYERS = 4
_OVERLAP = 0.7
_USUAL = 224.0  # pixels of a region that the fourth map is for (Lin 2017, equation 1)


def region_weights(config: PyramidConfig) -> dict[str, Any]:
    """The heads of regions: two layers for classes and boxes, four convolutions and a transposed one for masks."""
    wide, hidden = config.channels, _HIDDEN * config.channels // 256

    def layer(inputs: int, outputs: int) -> dict[str, ShardedWeight]:
        return {"kernel": ShardedWeight((inputs, outputs)), "offset": ShardedWeight((outputs,))}

    def filters(kernel: int, inputs: int, outputs: int) -> dict[str, ShardedWeight]:
        return {"kernel": ShardedWeight((kernel, kernel, inputs, outputs)), "offset": ShardedWeight((outputs,))}

    return {
        "first": layer(_SIDE**2 * wide, hidden),
        "second": layer(hidden, hidden),
        "region_classes": layer(hidden, config.classes),
        "region_boxes": layer(hidden, 4 * config.classes),
        "mask_layers": [filters(3, wide, wide) for _ in range(_MASK_LAYERS)],
        "finer": filters(2, wide, wide),
        "masks": filters(1, wide, config.classes),
    }


def chosen(scores: list[jax.Array], boxes: list[jax.Array], config: PyramidConfig) -> jax.Array:
    """Regions (B, regions, 4), as shares of an image: of each map the best boxes that no better one overlaps, the best of all."""
    kept, ranked = [], []
    for score, box in zip(scores, boxes, strict=True):
        best, places = jax.lax.top_k(score[..., 0].astype(jnp.float32), min(config.proposed, score.shape[1]))
        these = _corners(jnp.take_along_axis(box, places[..., None], axis=1).astype(jnp.float32))
        better = jnp.tril(jnp.ones((these.shape[1],) * 2, bool), -1)
        hidden = jnp.any((_overlaps(these) > _OVERLAP) & better, axis=-1)
        kept.append(these)
        ranked.append(jnp.where(hidden, -jnp.inf, best))
    _, places = jax.lax.top_k(jnp.concatenate(ranked, axis=1), config.regions)
    return jnp.take_along_axis(jnp.concatenate(kept, axis=1), places[..., None], axis=1)


def _corners(box: jax.Array) -> jax.Array:
    """Corners in [0, 1] of boxes that are told by centres and logarithms of sizes."""
    centre, size = jax.nn.sigmoid(box[..., :2]), jax.nn.sigmoid(box[..., 2:])
    return jnp.clip(jnp.concatenate([centre - size / 2, centre + size / 2], axis=-1), 0, 1)


def _overlaps(boxes: jax.Array) -> jax.Array:
    """Intersections over unions (B, N, N) of boxes (B, N, 4)."""
    low = jnp.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = jnp.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = jnp.prod(jnp.maximum(high - low, 0), axis=-1)
    areas = jnp.prod(boxes[..., 2:] - boxes[..., :2], axis=-1)
    return shared / jnp.maximum(areas[:, :, None] + areas[:, None] - shared, 1e-6)


def pooled(maps: list[jax.Array], regions: jax.Array, side: int, config: PyramidConfig) -> jax.Array:
    """Regions (B, R, 4) cut out of the map of their size, side x side pixels of two by two samples, each of four pixels of it.

    (He 2017, section 3: RoIAlign; Lin 2017, section 4.2: which map.)
    """
    sizes = jnp.asarray([x.shape[1:3] for x in maps], jnp.int32)
    starts = jnp.asarray([0, *[x.shape[1] * x.shape[2] for x in maps[:-1]]], jnp.int32).cumsum()
    pixels = jnp.concatenate([x.reshape(x.shape[0], -1, x.shape[-1]) for x in maps], axis=1)
    extent = (regions[..., 2:] - regions[..., :2]) * jnp.asarray([config.height, config.image], jnp.float32)
    size = jnp.sqrt(jnp.maximum(jnp.prod(extent, axis=-1), 1.0))
    level = jnp.clip(jnp.floor(2 + jnp.log2(size / _USUAL)), 0, 3).astype(jnp.int32)
    steps = (jnp.arange(side * _SAMPLES) + 0.5) / (side * _SAMPLES)

    def along(axis: int) -> jax.Array:
        """Places (B, R, samples) along an axis of the region's own map."""
        first, last = regions[..., axis], regions[..., axis + 2]
        share = first[..., None] + (last - first)[..., None] * steps
        return share * (sizes[level, axis] - 1)[..., None]

    rows, columns = along(0), along(1)
    width = sizes[level, 1][..., None, None]
    total: Any = 0.0
    for row, row_share in _corner(rows):
        for column, column_share in _corner(columns):
            flat = starts[level][..., None, None] + row[..., :, None] * width + column[..., None, :]
            flat = jnp.minimum(flat, pixels.shape[1] - 1)
            picked = jnp.take_along_axis(pixels, flat.reshape(flat.shape[0], -1, 1), axis=1, mode="clip")
            share = (row_share[..., :, None] * column_share[..., None, :]).astype(pixels.dtype)
            total = total + picked.reshape(*flat.shape, -1) * share[..., None]
    batch, count = regions.shape[:2]
    grid = total.reshape(batch * count, side, _SAMPLES, side, _SAMPLES, -1)
    return jnp.mean(grid, axis=(2, 4))


def _corner(places: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """The two neighbours of every place, and how near each is."""
    low = jnp.floor(places)
    return [(low.astype(jnp.int32), 1 - (places - low)), (low.astype(jnp.int32) + 1, places - low)]


def regions_found(
    params: dict[str, Any], maps: list[jax.Array], regions: jax.Array, *, config: PyramidConfig
) -> dict[str, jax.Array]:
    """Classes and boxes of regions, and masks of a quarter of them."""

    def linear(x: jax.Array, name: str) -> jax.Array:
        made: jax.Array = x @ params[name]["kernel"] + params[name]["offset"]
        return made

    batch, fewer = regions.shape[0], config.regions // 4
    x = pooled(maps, regions, _SIDE, config).reshape(batch, config.regions, -1)
    x = jax.nn.relu(linear(jax.nn.relu(linear(x, "first")), "second"))
    y = pooled(maps, regions[:, :fewer], 2 * _SIDE, config)
    for w in params["mask_layers"]:
        y = jax.nn.relu(convolution(y, w, 1) + w["offset"])
    finer = params["finer"]
    # A transposed convolution whose filters do not overlap: a product, and pixels in their places.
    made = jnp.einsum("nhwc,ijcd->nhiwjd", y, finer["kernel"])
    y = jax.nn.relu(made.reshape(y.shape[0], 4 * _SIDE, 4 * _SIDE, -1) + finer["offset"])
    y = convolution(y, params["masks"], 1) + params["masks"]["offset"]
    return {
        "region_classes": linear(x, "region_classes"),
        "region_boxes": linear(x, "region_boxes"),
        "masks": y.reshape(batch, fewer, 4 * _SIDE, 4 * _SIDE, -1),
    }
