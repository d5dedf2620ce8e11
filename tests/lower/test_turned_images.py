"""Images channels first, which cuDNN turns around convolutions on tensor cores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import meshcast as mc


def _turned(window: int, channels: int, pixels: int) -> list[int]:
    """Bytes that each turned image is read with, of one convolution and its gradients."""

    def loss(image: jax.Array, taps: jax.Array) -> jax.Array:
        made = jax.lax.conv_general_dilated(
            image, taps, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=jnp.float16
        )
        return jnp.sum(made * made)

    image = jax.ShapeDtypeStruct((8, pixels, pixels, channels), jnp.float16)
    taps = jax.ShapeDtypeStruct((window, window, channels, 64), jnp.float16)
    run = mc.capture(jax.grad(loss, argnums=(0, 1)), image, taps).on("a100-sxm-80gb", overlap="turned-images")
    return [kernel.read_bytes for kernel, _ in run.lowered.schedule.walk() if kernel.name == "image:transpose"]


def test_images_are_turned_before_and_behind_each_pass() -> None:
    # Forward: image and result; its gradient by the image: gradient and result; by the filter: both of its operands.
    assert sorted(_turned(3, 64, 32)) == [8 * 32 * 32 * 64 * 2] * 6


@pytest.mark.parametrize(("window", "channels", "pixels"), [(1, 64, 32), (3, 8, 32), (3, 64, 8)])
def test_single_pixels_few_channels_and_small_images_have_kernels_of_their_own(
    window: int, channels: int, pixels: int
) -> None:
    assert not _turned(window, channels, pixels)
