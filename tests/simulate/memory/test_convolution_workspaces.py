"""Workspaces of cuDNN's calls, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast.simulate.memory.convolution_workspaces import workspace_bytes
from meshcast.workload import Convolution

CORES = 132


def convolution(**changed: Any) -> Convolution:
    """A layer of 3 x 3 taps over 128 images of 16 x 16 pixels and 64 channels."""
    fields: dict[str, Any] = {
        "batch": 128, "in_channels": 64, "out_channels": 128, "in_spatial": (16, 16), "out_spatial": (16, 16),
        "kernel": (3, 3), "strides": (1, 1), "padding": ((1, 1), (1, 1)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
        "feature_groups": 1, "batch_groups": 1, "macs": 1, "lhs_dtype": "f32", "rhs_dtype": "f32", "out_dtype": "f32",
        "layout": "b01f,o01i->b01f",
    }  # fmt: skip
    return Convolution(**(fields | changed))


def test_a_plain_layer_needs_nothing() -> None:
    assert workspace_bytes(convolution(), CORES) == 0
    assert workspace_bytes(convolution(feature_groups=64, in_channels=1), CORES) == 0


@pytest.mark.parametrize(
    "few",
    [
        {"in_channels": 3},
        {"kernel": (16, 16), "out_spatial": (3, 3), "padding": ((200, 200), (200, 200))},
        {"rhs_dilation": (16, 16)},
    ],
)
def test_forward_calls_in_f32_copy_both_operands(few: dict[str, Any]) -> None:
    """Few channels; a filter as large as an image, too large for transforms; taps that are far apart."""
    shape = convolution(**few)
    taps = shape.kernel[0] * shape.kernel[1]
    copied = 128 * shape.in_channels * 256 + shape.in_channels * 128 * taps
    assert workspace_bytes(shape, CORES) == 4 * copied


def test_spectra_lie_there_twice_and_the_results_once() -> None:
    """18 x 18 pixels are transformed to 32 x 17 frequencies of 8 bytes: (128 + 128) * 64 planes twice, 128 * 128 once."""
    shape = convolution(kernel=(16, 16), out_spatial=(3, 3))
    copied = 4 * (128 * 64 * 256 + 64 * 128 * 256)
    assert workspace_bytes(shape, CORES) == copied + 32 * 17 * 8 * (2 * 256 * 64 + 128 * 128)


def test_small_filters_are_not_transformed() -> None:
    """7 x 7 taps of 3 x 3 results are 882 FLOPs a channel, the products of 16 x 9 frequencies 1,152."""
    shape = convolution(in_spatial=(9, 9), kernel=(7, 7), out_spatial=(3, 3), padding=((0, 0), (0, 0)))
    assert workspace_bytes(shape, CORES) == 4 * 64 * (128 * 81 + 128 * 49)


@pytest.mark.parametrize(("channels", "copied"), [(64, 0), (3, 4 * (3 * 128 * 256 + 128 * 128 * 256))])
def test_gradients_of_filters_are_summed_in_parts(channels: int, copied: int) -> None:
    """Of 64 channels the gradient is 1 x 5 tiles, so 26 parts fill 132 SMs, and 32,768 pixels make 25; of 3 it is one tile."""
    shape = convolution(batch=channels, in_channels=128, kernel=(16, 16), out_spatial=(3, 3), layout="f01b,i01o->f01b")
    assert workspace_bytes(shape, CORES) == copied + 25 * 4 * channels * 128 * 9
