"""Detectors: default boxes, which of them count, and what is cut out of maps."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import pytest

from meshcast.base.errors import UsageError
from meshcast.zoo.architectures.ssd import box_count, detection_loss
from meshcast.zoo.layers.regions import pooled
from meshcast.zoo.shapes.pyramids import SHAPES as PYRAMIDS
from meshcast.zoo.shapes.ssd import SHAPES


def test_boxes_of_the_published_maps() -> None:
    """Maps of 38, 19, 10, 5, 3 and 1 pixels with 4, 6, 6, 6, 4 and 4 boxes each (Liu 2016, section 3.1)."""
    assert box_count(SHAPES["ssd300-resnet50"].config) == 8732


def test_an_image_must_leave_a_pixel_of_every_map() -> None:
    config = SHAPES["ssd-tiny"].config
    assert replace(config, image=257).maps == (33, 17, 9, 5, 3, 1)
    with pytest.raises(UsageError, match=r"image=256 leaves no pixel of the last map, which is made of 4 x 4"):
        replace(config, image=256)


def test_three_boxes_without_an_object_count_for_one_with() -> None:
    """Of five others with unlike losses the three largest; the box itself is off by 3 in one number, 3 - 0.5."""
    classes = 2
    # Losses of class 0 where the score of class 1 is s: log(1 + e^s).
    scores = jnp.asarray([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    found = {
        "boxes": jnp.zeros((1, 6, 4)).at[0, 0, 0].set(3.0),
        "classes": jnp.stack([jnp.zeros(6), scores], axis=-1)[None],
    }
    batch = {"boxes": jnp.zeros((1, 6, 4)), "labels": jnp.asarray([[1, 0, 0, 0, 0, 0]])}
    worst = jnp.log1p(jnp.exp(jnp.asarray([3.0, 4.0, 5.0]))).sum()
    assert found["classes"].shape[-1] == classes
    assert float(detection_loss(found, batch)) == pytest.approx(float(2.5 + jnp.log(2.0) + worst), rel=1e-6)


def test_pixels_of_regions_are_means_of_their_neighbours() -> None:
    """On a map whose value is the column, a region over all columns has in each of its pixels the middle of two samples."""
    config = PYRAMIDS["mask-rcnn-tiny"].config
    maps = [jnp.broadcast_to(jnp.arange(float(w))[None, None, :, None], (1, h, w, 1)) for h, w in config.maps]
    regions = jnp.asarray([[[0.0, 0.0, 1.0, 1.0]]])
    cut = pooled(maps, regions, 7, config)[0, 0, :, 0]
    # 128 pixels across is a region for the second map, of 16 columns: places share x 15.
    assert config.maps[1] == (16, 16)
    assert [float(each) for each in cut] == pytest.approx([15 * (i + 0.5) / 7 for i in range(7)], rel=1e-5)


def test_boxes_of_retinanet() -> None:
    """Nine boxes on maps of 100, 50, 25, 13 and 7 pixels."""
    config = PYRAMIDS["retinanet"].config
    assert config.boxes == 9 * (100**2 + 50**2 + 25**2 + 13**2 + 7**2)
