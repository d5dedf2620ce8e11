"""Convolutions on CUDA cores, where tensor cores have no type for them: Winograd's algorithm, and few channels."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.convolution import WINOGRAD, convolution_product
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.parameters import GpuParameters, shipped_gpu_calibration
from meshcast.hardware import load_device
from meshcast.lower import Kernel
from meshcast.workload.graph import Convolution
from tests.estimate.gpu.test_grouped_convolutions import grouped

V100, A100 = load_device("v100-sxm2-16gb"), load_device("a100-sxm-80gb")


def flops_per_second(kernel: Kernel, device: str) -> float:
    seconds = float(GpuAnalytical().estimate([kernel], load_device(device)).time[0])
    return kernel.matrix_flops / seconds


def layer(side: int = 3, *, stride: int = 1, dtype: str = "f32", channels: int = 256) -> Kernel:
    kernel = grouped(channels, 1, (side, side), (28, 28), batch=64, dtype=dtype)
    assert isinstance(kernel.geometry, Convolution)
    return replace(kernel, geometry=replace(kernel.geometry, strides=(stride, stride)))


def test_filters_of_three_do_fewer_multiplications_on_cuda_cores() -> None:
    """36 of four results become 16; other filters, strides and tensor cores multiply all of them."""
    wide, strided = (flops_per_second(layer(stride=stride), V100.name) for stride in (1, 2))
    assert wide / strided == pytest.approx(WINOGRAD, rel=0.2)  # and what a launch takes
    assert wide > 0.9 * V100.vector_flops["f32"]  # no estimate lies beyond the FLOPs of a program at the peak
    assert flops_per_second(layer(5), V100.name) < 0.7 * V100.vector_flops["f32"]
    on_tensor_cores = [flops_per_second(layer(stride=stride), A100.name) for stride in (1, 2)]
    assert on_tensor_cores[0] == pytest.approx(on_tensor_cores[1], rel=0.01)


def test_few_channels_starve_tensor_cores_alone() -> None:
    kernel = layer(7)
    assert isinstance(kernel.geometry, Convolution)
    macs = kernel.geometry.macs * 3 // 256
    few = replace(kernel, matrix_flops=2.0 * macs, geometry=replace(kernel.geometry, in_channels=3, macs=macs))
    assert flops_per_second(few, V100.name) > 0.3 * V100.vector_flops["f32"]
    assert flops_per_second(few, A100.name) < 0.1 * A100.matrix_flops["tf32"]


def test_convolutions_of_four_byte_operands_overlap_loads_and_products_less() -> None:
    """Where bytes and products take as long, the root of two times the longer one; of 2-byte operands the longer one alone."""
    p = shipped_gpu_calibration().parameters
    kernel = layer(1, channels=1024)
    loads_alike = replace(p, conv_wide_overlap=p.overlap)
    wide, usual = (_seconds(kernel, parameters) for parameters in (p, loads_alike))
    assert 1.1 < wide / usual < 2**0.5
    halves = layer(1, dtype="bf16", channels=1024)
    assert _seconds(halves, p) == _seconds(halves, loads_alike)


def test_gradients_of_filters_of_four_byte_operands_have_a_rate_of_their_own() -> None:
    """As many products at another share of the peak, beside operands that take as long from L2."""
    p = shipped_gpu_calibration().parameters
    forward = layer(3, channels=1024)
    shape = forward.geometry
    assert isinstance(shape, Convolution)
    swapped = replace(
        shape,
        batch=shape.in_channels,
        in_channels=shape.batch,
        kernel=shape.out_spatial,
        out_spatial=shape.kernel,
        layout="f01b,i01o,01bf",
    )
    gradient = replace(forward, geometry=swapped)
    assert 1.2 < _seconds(gradient, p) / _seconds(forward, p) < p.conv_wide_share / p.conv_wide_gradient
    alike = replace(p, conv_wide_gradient=p.conv_wide_share)
    assert _seconds(gradient, alike) == pytest.approx(_seconds(forward, alike), rel=0.1)


def test_channels_of_two_bytes_are_filled_up_tap_by_tap() -> None:
    """40 channels take 64 of a step of 32, 64 take as many; of 4 bytes all taps' channels are one sum."""
    p = shipped_gpu_calibration().parameters
    machine = GpuMachine(device=load_device("h200"), parameters=p)
    sums = {}
    for dtype, channels in itertools.product(("bf16", "f32"), (40, 64)):
        product = convolution_product(layer(3, dtype=dtype, channels=channels), machine)
        assert product is not None
        sums[dtype, channels] = product.k
    assert sums == {("bf16", 40): 9 * 64, ("bf16", 64): 9 * 64, ("f32", 40): 9 * 40, ("f32", 64): 9 * 64}
    pointwise = convolution_product(layer(1, dtype="bf16", channels=40), machine)
    assert pointwise is not None
    assert (pointwise.k, pointwise.step) == (40, 0)


def _seconds(kernel: Kernel, parameters: GpuParameters) -> float:
    calibration = replace(shipped_gpu_calibration(), parameters=parameters)
    return float(GpuAnalytical(calibration).estimate([kernel], load_device("h200")).time[0])
