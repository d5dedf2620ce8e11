"""Convolutions of groups: which of cuDNN's kernels runs, and what it costs, followed by hand."""

from __future__ import annotations

import math

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
    """XLA finds no gradient in a window that moves in steps; cuDNN's forward kernels do not split sums (1,940 us measured)."""
    assert seconds(_gradient_of_dilated(called_as_gradient=False)) > 10 * seconds(
        _gradient_of_dilated(called_as_gradient=True)
    )
