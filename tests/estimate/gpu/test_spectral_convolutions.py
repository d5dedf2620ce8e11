"""Convolutions by transforms: when cuDNN has them, and what their passes add up to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind, spectral_side
from meshcast.workload import Convolution

H200 = load_device("h200")


def image_filter(batch: int, channels: int, results: int, size: int, taps: int) -> Convolution:
    """A forward call with an image for a filter, which leaves `size - taps + 1` places a side."""
    side = size - taps + 1
    return Convolution(
        batch=batch, in_channels=channels, out_channels=results, in_spatial=(size, size), out_spatial=(side, side),
        kernel=(taps, taps), strides=(1, 1), padding=((0, 0),) * 2, lhs_dilation=(1, 1), rhs_dilation=(1, 1),
        feature_groups=1, batch_groups=1, macs=batch * channels * results * side * side * taps * taps, lhs_dtype="f32",
        rhs_dtype="f32", out_dtype="f32", layout="b01f,o01i->b01f",
    )  # fmt: skip


def seconds(shape: Convolution) -> float:
    reads = shape.in_channels * (shape.batch * shape.in_spatial[0] ** 2 + shape.out_channels * shape.kernel[0] ** 2) * 4
    kernel = Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="f32", matrix_flops=2.0 * shape.macs, read_bytes=reads,
        written_bytes=shape.batch * shape.out_channels * shape.out_spatial[0] ** 2 * 4, geometry=shape,
    )  # fmt: skip
    return float(GpuAnalytical().estimate([kernel], H200).time[0])


@pytest.mark.parametrize(("size", "side"), [(11, 16), (35, 64), (65, 128), (129, 256), (256, 256), (257, None)])
def test_the_next_power_of_two_holds_the_image(size: int, side: int | None) -> None:
    assert spectral_side(image_filter(8, 8, 8, size, size - 2)) == side


def test_holes_and_narrow_numbers_have_no_transforms() -> None:
    shape = image_filter(8, 8, 8, 65, 63)
    assert spectral_side(replace(shape, rhs_dilation=(2, 2))) is None
    assert spectral_side(replace(shape, lhs_dtype="bf16")) is None


@pytest.mark.parametrize(
    ("shape", "measured"),
    [
        (image_filter(64, 128, 32, 65, 63), 2.39e-3),
        (image_filter(64, 128, 64, 65, 63), 3.75e-3),
        (image_filter(32, 128, 64, 129, 127), 9.27e-3),
        (image_filter(64, 64, 64, 59, 55), 0.59e-3),
    ],
)
def test_measured_calls(shape: Convolution, measured: float) -> None:
    assert seconds(shape) == pytest.approx(measured, rel=0.25)


def test_a_small_filter_is_a_product_of_tiles() -> None:
    """Three taps a side: 2.3 GFLOP of TF32, where transforms would move 80 MB of frequencies alone, 50 us of memory."""
    shape = image_filter(8, 64, 64, 64, 3)
    assert seconds(shape) < 40e-6
