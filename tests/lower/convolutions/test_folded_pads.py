"""Pads of images are the padding of the convolutions that read them (XLA's FoldConvInputPad)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import KernelKind
from meshcast.workload import Convolution
from tests.lower.programs import kernels, lower_function, spec

NHWC = ("NHWC", "HWIO", "NHWC")
Pair = tuple[int, int]


def padded(
    pads: tuple[Pair, Pair, Pair, Pair],
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0)),
    interior: int = 0,
    value: float = 0.0,
) -> tuple[list[str], Convolution]:
    """The kernels before the convolution of an image with a pad in front, and its shape."""

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        config = [(low, high, interior if 0 < dim < 3 else 0) for dim, (low, high) in enumerate(pads)]
        around = lax.pad(jnp.sin(x), jnp.float32(value), config)
        return lax.conv_general_dilated(around, w, (2, 2), padding, dimension_numbers=NHWC)

    channels = 32 + sum(pads[3])
    found = kernels(lower_function(function, spec(8, 56, 56, 32), spec(3, 3, channels, 64)))
    (call,) = [kernel for kernel in found if kernel.kind is KernelKind.CONVOLUTION]
    assert isinstance(call.geometry, Convolution)
    return [op for kernel in found if kernel.kind is KernelKind.LOOP_FUSION for op in kernel.ops], call.geometry


@pytest.mark.parametrize(
    ("image", "padding", "together"), [((1, 1), (0, 0), (1, 1)), ((2, 1), (0, 1), (2, 2)), ((0, 1), (1, 0), (1, 1))]
)
def test_even_padding_needs_no_pad(image: Pair, padding: Pair, together: Pair) -> None:
    ops, shape = padded(((0, 0), image, image, (0, 0)), (padding, padding))
    assert "stablehlo.pad" not in ops
    assert shape.in_spatial == (56, 56)
    assert shape.padding == (together, together)
    assert shape.out_spatial == ((53 + sum(together)) // 2 + 1,) * 2


def test_uneven_padding_is_written_out_around_the_image() -> None:
    ops, shape = padded(((0, 0), (0, 1), (0, 1), (0, 0)))
    assert "stablehlo.pad" in ops
    assert shape.in_spatial == (57, 57)
    assert shape.padding == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    "pads", [((0, 0), (1, 1), (1, 1), (0, 8)), ((0, 8), (1, 1), (1, 1), (0, 0)), ((0, 0), (1, -1), (1, -1), (0, 0))]
)
def test_pads_of_channels_and_cuts_stay(pads: tuple[Pair, Pair, Pair, Pair]) -> None:
    ops, shape = padded(pads)
    assert "stablehlo.pad" in ops
    assert shape.padding == ((0, 0), (0, 0))


def test_holes_in_an_image_stay() -> None:
    ops, _ = padded(((0, 0), (1, 1), (1, 1), (0, 0)), interior=1)
    assert "stablehlo.pad" in ops


def test_other_values_than_zero_stay() -> None:
    ops, shape = padded(((0, 0), (1, 1), (1, 1), (0, 0)), value=1.0)
    assert "stablehlo.pad" in ops
    assert shape.padding == ((0, 0), (0, 0))
