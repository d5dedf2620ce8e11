"""What cuDNN's own kernels take beside their products: a call's start, and the steps of TF32."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.gpu.convolution import convolution_product
from meshcast.estimate.gpu.convolution_calls import LOADED_BY, in_tf32, is_plain_product, with_start
from meshcast.estimate.gpu.estimator import GpuAnalytical
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.rates import matrix_rate
from meshcast.hardware import load_device
from meshcast.lower import Kernel, is_filter_gradient_call
from meshcast.workload import Convolution
from tests.estimate.gpu.test_grouped_convolutions import grouped

H200 = load_device("h200")
MODEL = GpuAnalytical()
MACHINE = GpuMachine(device=H200, parameters=MODEL.calibration.parameters)


def layer(side: int = 3, dtype: str = "f32", **changed: object) -> Kernel:
    kernel = grouped(64, 1, (side, side), (56, 56), batch=64, dtype=dtype)
    assert isinstance(kernel.geometry, Convolution)
    return replace(kernel, geometry=replace(kernel.geometry, **changed))  # type: ignore[arg-type]


def gradient(dtype: str = "f32") -> Kernel:
    """The gradient of a filter of 3 x 3: batch and channels exchanged, the image for a window."""
    return layer(3, dtype, kernel=(56, 56), out_spatial=(3, 3), layout="f01b,i01o->01bf")


def test_calls_of_cudnn_start_later_than_products() -> None:
    """6,000 cycles at 1.98 GHz are 3.03 us; filters of one element run on cuBLAS's kernels, unless they are strided."""
    work = GpuWork(time=10e-6, compute=9e-6, memory=1e-6)
    shapes = [each.geometry for each in (layer(), layer(1), layer(1, strides=(2, 2)), layer(1, lhs_dilation=(2, 2)))]
    times = [with_start(work, shape, MACHINE).time for shape in shapes if isinstance(shape, Convolution)]
    assert times == pytest.approx([13.03e-6, 10e-6, 13.03e-6, 13.03e-6], rel=1e-3)


def test_gradients_by_filters_are_products_across_their_numbers() -> None:
    """Channels lie along K, pixels do not: of a tile of 128 x 128 that costs 3 x 256 cycles of shared memory a step."""
    forward, backward = layer().geometry, gradient().geometry
    assert isinstance(forward, Convolution)
    assert isinstance(backward, Convolution)
    assert not is_plain_product(forward)
    assert is_filter_gradient_call(backward)
    along, across = convolution_product(layer(), MACHINE), convolution_product(gradient(), MACHINE)
    assert along is not None
    assert across is not None
    parameters, peak = MODEL.calibration.parameters, matrix_rate(layer(), H200).flops
    assert (along.carried, along.chained, along.peak) == (0.0, parameters.tf32_step_cycles, peak)
    assert (across.carried, across.chained) == (LOADED_BY, parameters.tf32_step_cycles)
    assert across.peak == pytest.approx(peak * parameters.warp_products)


def test_two_bytes_are_turned_by_the_units_themselves() -> None:
    kernel = gradient("bf16")
    shape, product = kernel.geometry, convolution_product(kernel, MACHINE)
    assert isinstance(shape, Convolution)
    assert product is not None
    assert in_tf32(product, shape, matrix_rate(kernel, H200), MACHINE) is product
    assert product.carried == product.chained == 0


def test_f32_gradients_by_filters_reach_a_fifth_of_the_peak() -> None:
    """64 channels of a ResNet's first stage: 97 TFLOP/s of 494 on an H200, and the layer itself two to three times as many."""
    rates = [
        kernel.matrix_flops / float(MODEL.estimate([kernel], H200).time[0]) / matrix_rate(kernel, H200).flops
        for kernel in (gradient(), layer())
    ]
    assert 0.1 < rates[0] < 0.3
    assert rates[1] > 1.5 * rates[0]
