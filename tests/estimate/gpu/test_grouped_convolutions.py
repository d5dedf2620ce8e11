"""Convolutions of groups: which of cuDNN's kernels runs, and what it costs, followed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload.graph import Convolution, element_bytes

H200 = load_device("h200")
LANES = H200.vector_flops["f32"] / 2  # thread instructions a second


def grouped(
    channels: int,
    groups: int,
    kernel: tuple[int, ...],
    spatial: tuple[int, ...],
    *,
    batch: int = 8,
    dtype: str = "bf16",
) -> Kernel:
    rank = len(kernel)
    results = batch * math.prod(spatial) * channels
    geometry = Convolution(
        batch=batch, in_channels=channels, out_channels=channels, in_spatial=spatial, out_spatial=spatial, kernel=kernel,
        strides=(1,) * rank, padding=((0, 0),) * rank, lhs_dilation=(1,) * rank, rhs_dilation=(1,) * rank,
        feature_groups=groups, batch_groups=1, macs=results * (channels // groups) * math.prod(kernel),
        lhs_dtype=dtype, rhs_dtype=dtype, out_dtype=dtype, layout="b01f,01io->b01f",
    )  # fmt: skip
    size = int(results * element_bytes(dtype))
    return Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype=dtype, matrix_flops=2.0 * geometry.macs,
        read_bytes=size, written_bytes=size, geometry=geometry,
    )  # fmt: skip


def seconds(kernel: Kernel) -> float:
    return float(GpuAnalytical().estimate([kernel], H200).time[0])


def test_a_filter_along_a_line_works_out_every_index() -> None:
    """Mamba's: 4 taps of 1,536 channels over 4 x 1,024 positions; 242 us measured."""
    p = shipped_gpu_calibration().parameters
    line = grouped(1536, 1536, (4,), (1024,), batch=4)
    issued = 4 * 1024 * 1536 * (p.general_index + 4 * p.general_tap) / LANES
    assert seconds(line) == pytest.approx(issued, rel=0.1)  # the clock is up to 8 % above the data sheet's
    assert seconds(line) == pytest.approx(242e-6, rel=0.05)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_square_filters_have_kernels_of_their_own(side: int) -> None:
    own = grouped(256, 256, (side, side), (28, 28), batch=64)
    other = grouped(256, 256, (side, side + 1), (28, 28), batch=64)
    assert seconds(own) * 5 < seconds(other)


def test_two_byte_numbers_are_multiplied_in_pairs() -> None:
    half = grouped(192, 192, (7, 7), (56, 56), batch=64)
    whole = grouped(192, 192, (7, 7), (56, 56), batch=64, dtype="f32")
    assert seconds(whole) == pytest.approx(2 * seconds(half), rel=0.1)


def test_long_filters_are_padded_for_tensor_cores() -> None:
    """Instructions per tap would take the direct kernel 25 times as long from 4 taps to 128."""
    assert seconds(grouped(1536, 1536, (128,), (1024,))) < 12 * seconds(grouped(1536, 1536, (4,), (1024,)))


@pytest.mark.parametrize("groups", [8, 16, 32, 64])
def test_narrow_groups_share_a_tile(groups: int) -> None:
    """A tile of 64 channels costs the same whether it holds one group of 64 or sixteen of 4."""
    narrow, wide = (grouped(256, n, (3, 3), (28, 28), batch=64) for n in (groups, 4))
    assert seconds(narrow) == pytest.approx(seconds(wide), rel=0.01)


def _gradient_of_dilated(*, called_as_gradient: bool) -> Kernel:
    """The filter's gradient of 64 -> 64 channels over 8 lines of 16,000: by cuDNN's own call, or as a forward one."""
    geometry = Convolution(
        batch=64, in_channels=8, out_channels=64, in_spatial=(16000,), out_spatial=(2,), kernel=(16000,),
        strides=(1,) if called_as_gradient else (128,), padding=((64, 64),), lhs_dilation=(1,), rhs_dilation=(1,),
        feature_groups=1, batch_groups=1, macs=64 * 8 * 64 * 2 * 16000, lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32",
        layout="f0b,i0o->0bf",
    )  # fmt: skip
    return Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="f32", matrix_flops=2.0 * geometry.macs,
        read_bytes=2 * 64 * 8 * 16000 * 4, written_bytes=64 * 64 * 2 * 4, geometry=geometry,
    )  # fmt: skip


def test_a_gradient_that_runs_as_a_forward_call_has_long_sums_in_few_tiles() -> None:
    """XLA finds no gradient in a window that moves in steps; cuDNN's forward kernels do not split sums (5.9 ms were measured)."""
    forward = _gradient_of_dilated(called_as_gradient=False)
    assert seconds(forward) > 10 * seconds(_gradient_of_dilated(called_as_gradient=True))
    assert seconds(forward) > 576 * 16000 / H200.clock_hz  # 576 cycles for every tap: 8 channels are one step


def test_a_signal_for_a_filter_keeps_one_thread_waiting() -> None:
    """256 channels of their own, three results of 32,000 taps each: a load's 1,040 cycles a tap; 17 ms were measured."""
    long = grouped(256, 256, (4000,), (3,), batch=1, dtype="f32")
    geometry = replace(long.geometry, macs=256 * 3 * 32000)  # type: ignore[type-var]
    assert seconds(replace(long, geometry=geometry)) == pytest.approx(32000 * 1040 / H200.clock_hz, rel=0.01)


def test_the_gradient_of_a_dilated_depthwise_filter_is_such_a_signal() -> None:
    """8 images of 4,000 places in 256 groups, in steps of 32: no call for gradients, but a forward one; 17 ms were measured."""
    geometry = Convolution(
        batch=256, in_channels=8, out_channels=256, in_spatial=(4000,), out_spatial=(3,), kernel=(4000,), strides=(32,),
        padding=((32, 32),), lhs_dilation=(1,), rhs_dilation=(1,), feature_groups=1, batch_groups=256,
        macs=256 * 3 * 32000, lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32", layout="f0b,i0o->0bf",
    )  # fmt: skip
    kernel = Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="f32", matrix_flops=2.0 * geometry.macs,
        read_bytes=65_536_000, written_bytes=3072, geometry=geometry,
    )  # fmt: skip
    assert seconds(kernel) == pytest.approx(32000 * 1040 / H200.clock_hz, rel=0.01)


def _filter_gradient(side: int) -> Kernel:
    """96 channels of their own over 16 images of 56 x 56, by the filter."""
    macs = 96 * side * side * 16 * 56 * 56
    geometry = Convolution(
        batch=96, in_channels=16, out_channels=96, in_spatial=(56, 56), out_spatial=(side, side), kernel=(56, 56),
        strides=(1, 1), padding=((side // 2, side // 2),) * 2, lhs_dilation=(1, 1), rhs_dilation=(1, 1), feature_groups=1,
        batch_groups=96, macs=macs, lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32", layout="f01b,i01o->01bf",
    )  # fmt: skip
    return Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="f32", matrix_flops=2.0 * macs,
        read_bytes=38_535_168, written_bytes=96 * side * side * 4, geometry=geometry,
    )  # fmt: skip


def test_gradients_by_filters_of_seven_have_no_kernel_of_their_own() -> None:
    """1.2 ms were measured for 7 x 7, 61 us for 3 x 3 (of 128 channels and 64 images)."""
    assert seconds(_filter_gradient(7)) == pytest.approx(1.2e-3, rel=0.3)
    assert seconds(_filter_gradient(3)) < 60e-6


def test_few_channels_on_both_sides_run_directly() -> None:
    """A wavelet's level: 64 lines of 65,548 by two filters of 8, in steps of two; 125 us were measured."""
    p = shipped_gpu_calibration().parameters
    geometry = Convolution(
        batch=64, in_channels=1, out_channels=2, in_spatial=(65548,), out_spatial=(32771,), kernel=(8,), strides=(2,),
        padding=((0, 0),), lhs_dilation=(1,), rhs_dilation=(1,), feature_groups=1, batch_groups=1,
        macs=64 * 32771 * 2 * 8, lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32", layout="bf0,oi0->bf0",
    )  # fmt: skip
    level = Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="f32", matrix_flops=2.0 * geometry.macs,
        read_bytes=64 * 65548 * 4, written_bytes=64 * 2 * 32771 * 4, geometry=geometry,
    )  # fmt: skip
    issued = 64 * 32771 * (p.general_index + 8 * p.general_tap) / LANES
    assert seconds(level) == pytest.approx(issued, rel=0.1)
    assert seconds(level) == pytest.approx(125e-6, rel=0.1)
