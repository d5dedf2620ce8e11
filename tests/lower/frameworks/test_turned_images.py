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


def test_a_batch_norm_s_sums_take_as_long_as_a_block_needs_for_its_channel() -> None:
    """64 channels of 64 x 64 pixels of 64 images: 0.5 MB a block, read and written at 7.9 GB/s and 1.98 GHz."""

    def sums(image: jax.Array) -> jax.Array:
        return jnp.sum(image, axis=(0, 1, 2), dtype=jnp.float32)

    image = jax.ShapeDtypeStruct((64, 64, 64, 64), jnp.float16)
    program = mc.capture(sums, image)
    plain, by_channel = (
        program.on("a100-sxm-80gb", overlap=overlap, host="off").timeline.duration for overlap in ("", "channel-sums")
    )
    of_a_block = 2 * 64**3 * 2 / 7.9e9 * 1.98 / 1.41
    assert plain < 0.5 * of_a_block
    assert by_channel == pytest.approx(of_a_block, rel=0.1)
