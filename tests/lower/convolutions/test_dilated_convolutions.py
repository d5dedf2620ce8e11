"""Dilation becomes zeros where XLA:GPU makes it so; the shapes are those that its compiler gave for the same programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import meshcast
from meshcast.workload import Convolution

IMAGE = jax.ShapeDtypeStruct((8, 64, 64, 64), jnp.bfloat16)
FILTER = jax.ShapeDtypeStruct((3, 3, 64, 64), jnp.bfloat16)


def convolve(padding: tuple[int, int], *, lhs: int = 1, rhs: int = 1) -> Callable[..., Any]:
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, (1, 1), [padding] * 2, lhs_dilation=(lhs, lhs), rhs_dilation=(rhs, rhs),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


def lowered(function: Callable[..., Any]) -> Convolution:
    kernels = meshcast.capture(function, IMAGE, FILTER).workload().lower().schedule.walk()
    (found,) = (kernel.geometry for kernel, _ in kernels if isinstance(kernel.geometry, Convolution))
    return found


@pytest.mark.parametrize(
    ("padding", "lhs", "rhs", "spatial", "kernel", "dilation"),
    [
        ((16, 16), 1, 16, 64, 3, 16),  # cuDNN dilates filters itself
        ((32, 0), 1, 16, 96, 33, 1),  # but for uneven padding: a causal layer
        ((1, 2), 2, 1, 130, 3, 1),  # a transposed layer
        ((2, 2), 2, 1, 131, 3, 1),
    ],
)
def test_zeros_stand_for_dilation_that_the_call_has_not(
    padding: tuple[int, int], lhs: int, rhs: int, spatial: int, kernel: int, dilation: int
) -> None:
    found = lowered(convolve(padding, lhs=lhs, rhs=rhs))
    assert found.in_spatial == (spatial, spatial)
    assert found.kernel == (kernel, kernel)
    assert found.rhs_dilation == (dilation, dilation)
    assert found.lhs_dilation == (1, 1)
    if dilation == 1:  # every place of the result meets every tap
        results = 8 * 64 * found.out_spatial[0] ** 2
        assert found.macs == results * 64 * kernel**2


def test_padding_in_front_of_a_dilated_filter_joins_its_window() -> None:
    def causal(x: Any, w: Any) -> Any:
        padded = jnp.pad(x, ((0, 0), (32, 0), (32, 0), (0, 0)))
        return convolve((0, 0), rhs=16)(padded, w)

    assert lowered(causal).kernel == (33, 33)


def test_input_gradients_of_strided_layers_keep_their_own_call() -> None:
    """A reversed filter with a dilated input is what cuDNN computes without zeros."""

    def forward(image: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(image, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def gradient(x: Any, w: Any) -> Any:
        return jax.grad(lambda image: forward(image, w).astype(jnp.float32).sum())(x)

    found = meshcast.capture(gradient, IMAGE, FILTER).workload().lower().schedule.walk()
    dilated = [k.geometry.lhs_dilation for k, _ in found if isinstance(k.geometry, Convolution)]
    assert (2, 2) in dilated


def test_the_filter_gradient_of_a_transposed_layer_exchanges_its_operands() -> None:
    """Its dilated input becomes a dilated filter as large as an image: no zeros are multiplied."""

    def gradient(x: Any, w: Any) -> Any:
        forward = convolve((1, 2), lhs=2)
        return jax.grad(lambda taps: jnp.square(forward(x, taps)).astype(jnp.float32).sum())(w)

    kernels = meshcast.capture(gradient, IMAGE, FILTER).workload().lower().schedule.walk()
    found = [kernel.geometry for kernel, _ in kernels if isinstance(kernel.geometry, Convolution)][-1]
    assert max(found.kernel) >= 64
    assert found.lhs_dilation == (1, 1)


@pytest.mark.parametrize(
    ("padding", "spatial", "kernel", "dilation"),
    [
        ((2, 1), 129, 127, 1),  # three taps, as `SAME` doubles an image: zeros in and around both
        ((2, 2), 128, 64, 2),  # even padding in the end: cuDNN dilates the filter itself
    ],
)
def test_the_image_that_is_a_filter_has_zeros_where_padding_is_uneven(
    padding: tuple[int, int], spatial: int, kernel: int, dilation: int
) -> None:
    """A layer of an autoencoder: its filter's gradient is a convolution of 129 x 129 by 127 x 127, as XLA's text has it."""
    taps = jax.ShapeDtypeStruct((sum(padding),) * 2 + (64, 64), jnp.bfloat16)

    def gradient(x: Any, w: Any) -> Any:
        forward = convolve(padding, lhs=2)
        return jax.grad(lambda taps: jnp.square(forward(x, taps)).astype(jnp.float32).sum())(w)

    kernels = meshcast.capture(gradient, IMAGE, taps).workload().lower().schedule.walk()
    found = [kernel.geometry for kernel, _ in kernels if isinstance(kernel.geometry, Convolution)][-1]
    assert (found.in_spatial, found.kernel, found.rhs_dilation) == ((spatial,) * 2, (kernel,) * 2, (dilation,) * 2)
    assert found.lhs_dilation == (1, 1)
