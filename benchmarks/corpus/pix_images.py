"""PIX: processing of batches of images."""

from __future__ import annotations

from functools import partial
from typing import Any

import dm_pix as pix
import jax
import jax.numpy as jnp

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, spec

PIX = Catalogue("dm-pix", "library", "vision")
CATALOGUES = [PIX]
IMAGES = spec(64, 256, 256, 3)


def each(function: Any, *arguments: Any) -> Call:
    """A function over every image of a batch."""
    return jax.vmap(function), arguments


PIX.add("pix_gaussian_blur", partial(each, lambda x: pix.gaussian_blur(x, 2.0, 13), IMAGES), "infer")
PIX.add(
    "pix_ssim_psnr",
    partial(each, lambda x, y: (pix.ssim(x, y), pix.psnr(x, y), pix.simse(x, y)), IMAGES, IMAGES),
    "infer",
)
PIX.add(
    "pix_patches_depth", partial(each, lambda x: pix.depth_to_space(pix.space_to_depth(x, 4) * 2, 4), IMAGES), "infer"
)


@PIX.program("pix_colour_augment", "infer")
def _() -> Call:
    def augmented(key: Any, image: Any) -> Any:
        keys = jax.random.split(key, 5)
        image = pix.random_brightness(keys[0], image, 0.3)
        image = pix.random_contrast(keys[1], image, 0.5, 1.5)
        image = pix.random_saturation(keys[2], image, 0.5, 1.5)
        image = pix.random_hue(keys[3], image, 0.1)
        return pix.random_crop(keys[4], pix.random_flip_left_right(keys[0], image), (224, 224, 3))

    return (lambda key, images: jax.vmap(augmented)(jax.random.split(key, images.shape[0]), images)), (KEY, IMAGES)


@PIX.program("pix_affine_rotate", "infer")
def _() -> Call:
    return each(lambda x, angle: pix.rotate(x, angle, order=1, mode="constant"), IMAGES, spec(64))


@PIX.program("pix_elastic_deformation", "infer", "f32")
def _() -> Call:
    def deformed(key: Any, images: Any) -> Any:
        one = lambda k, x: pix.elastic_deformation(k, x, 30.0, 4.0, order=1)  # noqa: E731
        return jax.vmap(one)(jax.random.split(key, images.shape[0]), images)

    return deformed, (KEY, spec(16, 256, 256, 3))


@PIX.program("pix_hsl_round_trip_bf16", "infer", "bf16")
def _() -> Call:
    return each(
        lambda x: pix.hsl_to_rgb(pix.rgb_to_hsl(pix.adjust_gamma(x, 0.7))), spec(128, 256, 256, 3, dtype=jnp.bfloat16)
    )
