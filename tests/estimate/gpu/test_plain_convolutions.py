"""Convolutions on CUDA cores, where tensor cores have no type for them: Winograd's algorithm, and few channels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
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
    """36 of four results become 16, up to the peak; other filters, strides and tensor cores multiply all of them.

    A V100's other products reach 0.87 of the peak as its GEMMs do: places for loads are free beside its 16 cores a scheduler.
    """
    peak = V100.vector_flops["f32"]
    wide, strided = (flops_per_second(layer(stride=stride), V100.name) for stride in (1, 2))
    assert 0.9 * peak < wide <= peak  # no estimate lies beyond the FLOPs of a program at the peak
    for others in (strided, flops_per_second(layer(5), V100.name)):
        assert others == pytest.approx(shipped_gpu_calibration().parameters.tensor_share * peak, rel=0.1)
    on_tensor_cores = [flops_per_second(layer(stride=stride), A100.name) for stride in (1, 2)]
    assert on_tensor_cores[0] == pytest.approx(on_tensor_cores[1], rel=0.01)


def test_few_channels_starve_tensor_cores_alone() -> None:
    kernel = layer(7)
    assert isinstance(kernel.geometry, Convolution)
    macs = kernel.geometry.macs * 3 // 256
    few = replace(kernel, matrix_flops=2.0 * macs, geometry=replace(kernel.geometry, in_channels=3, macs=macs))
    assert flops_per_second(few, V100.name) > 0.3 * V100.vector_flops["f32"]
    assert flops_per_second(few, A100.name) < 0.1 * A100.matrix_flops["tf32"]
