"""Kernels on simulated SMs: bounds, trends, other GPUs, and where it should agree with the analytical model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import jax.numpy as jnp
import pytest

from meshcast import Options, prepare
from meshcast.base.errors import UnsupportedError
from meshcast.estimate import GpuAnalytical, Origin, least_seconds, light_seconds, load_simulator
from meshcast.estimate.multiprocessors import GpuSimulated
from meshcast.hardware import Device, load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.programs import capture
from meshcast.workload import Attention, Convolution, Reduction
from tests.estimate.conformance import check_conformance, gemm, pass_over
from tests.lower.programs import spec

H200 = load_device("h200")
GPUS = ("h200", "h100-sxm", "a100-sxm-80gb", "b200", "v100-sxm2-32gb", "l40s")


def attention(batch: int, length: int, heads: int, width: int, *, backward: bool = False) -> Kernel:
    """A causal call as the lowering would make it."""
    operand = batch * length * heads * width * 2
    products = 5 if backward else 2
    return Kernel(
        name="attention", kind=KernelKind.ATTENTION, dtype="bf16",
        matrix_flops=products * 2.0 * batch * heads * length * length * width / 2,
        vector_flops=4.0 * batch * heads * length * length / 2, transcendentals=batch * heads * length * length / 2,
        read_bytes=3 * operand, written_bytes=operand,
        geometry=Attention(
            batch=batch, heads=heads, kv_heads=heads, q_len=length, kv_len=length, head_dim=width, dtype="bf16",
            causal=True, backward=backward,
        ),
    )  # fmt: skip


def convolution(batch: int, side: int, channels: int, filters: int, taps: int = 3) -> Kernel:
    """A convolution without strides, on bf16."""
    macs = batch * side * side * channels * filters * taps * taps
    return Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="bf16", matrix_flops=2.0 * macs,
        read_bytes=2 * (batch * side * side * channels + channels * filters * taps * taps),
        written_bytes=2 * batch * side * side * filters,
        geometry=Convolution(
            batch=batch, in_channels=channels, out_channels=filters, in_spatial=(side, side), out_spatial=(side, side),
            kernel=(taps, taps), strides=(1, 1), padding=((1, 1), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(1, 1),
            feature_groups=1, batch_groups=1, macs=macs, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16",
            layout="b01f,01io->b01f",
        ),
    )  # fmt: skip


def summed(rows: int, columns: int, *, dims: tuple[int, ...]) -> Kernel:
    """A sum of f32 over some dimensions."""
    kept = (columns if dims == (0,) else rows) * 4
    return Kernel(
        name="reduction:add", kind=KernelKind.REDUCTION, dtype="f32", vector_flops=float(rows * columns),
        read_bytes=rows * columns * 4, written_bytes=kept, geometry=Reduction(shape=(rows, columns), dims=dims),
    )  # fmt: skip


KERNELS = (
    gemm(4096, 4096, 4096), gemm(512, 512, 512), gemm(16, 4096, 4096), gemm(128, 128, 64, batch=512),
    attention(2, 1024, 16, 64), attention(2, 1024, 16, 64, backward=True), convolution(32, 28, 128, 128),
    summed(4096, 1024, dims=(1,)), summed(4096, 1024, dims=(0,)), pass_over(2**28, 2**27, vector=2.0**26),
    pass_over(2**18, 2**18, vector=2.0**16),
)  # fmt: skip


@cache
def simulator() -> GpuSimulated:
    """One for all tests."""
    return GpuSimulated()


def seconds(kernel: Kernel, device: Device = H200) -> float:
    """Of one kernel."""
    return float(simulator().estimate([kernel], device).time[0])


@pytest.mark.parametrize("name", GPUS)
def test_it_conforms_and_is_never_faster_than_light(name: str) -> None:
    device = load_device(name)
    check_conformance(simulator(), device)
    kernels = [each for each in KERNELS if simulator().supports(each, device).level != "no"]
    assert len(kernels) == len(KERNELS)
    answer = simulator().estimate(kernels, device)
    boost = device.clock_hz / device.peak_clock_hz
    assert all(answer.time >= light_seconds(kernels, device) / boost * (1 - 1e-9))
    assert set(answer.origin) == {Origin.SIMULATED}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.kind.value}-{kernel.matrix_flops:.0e}")
def test_more_hardware_is_never_slower(kernel: Kernel) -> None:
    """Sharing by equal factors is no optimum, and another tile may be played: within 3 %."""
    base = seconds(kernel)
    wider = replace(H200, memory_bandwidth=H200.memory_bandwidth * 1.5)
    cached = replace(H200, cache_bandwidth=(H200.cache_bandwidth or 0.0) * 1.5)
    larger = replace(
        H200, cores=H200.cores * 2, matrix_flops={key: rate * 2 for key, rate in H200.matrix_flops.items()},
        vector_flops={key: rate * 2 for key, rate in H200.vector_flops.items()},
        transcendental_rate=(H200.transcendental_rate or 0.0) * 2,
    )  # fmt: skip
    for device in (wider, cached, larger):
        assert seconds(kernel, device) <= base * 1.03


def test_products_grow_across_the_borders_of_tiles() -> None:
    times = [seconds(gemm(rows, 4096, 1024)) for rows in range(256, 4097, 384)]
    assert all(later >= before * 0.97 for before, later in pairwise(times))
    assert times[-1] > 6 * times[0]


def test_loops_and_sums_grow() -> None:
    loops = [seconds(pass_over(2**power, 2**power, vector=2.0 ** (power - 2))) for power in range(12, 31, 2)]
    sums = [seconds(summed(2**power, 1024, dims=(1,))) for power in range(4, 19, 2)]
    assert loops == sorted(loops)
    assert sums == sorted(sums)


def test_large_products_and_copies_agree_with_the_analytical_model() -> None:
    """Both are near the tensor cores' or the memory's rate there, each by its own way: within 10 % and 6 %."""
    model = GpuAnalytical()
    for kernel, band in (
        (gemm(8192, 8192, 8192), 0.10),
        (gemm(16384, 8192, 4096), 0.10),
        (pass_over(2**29, 2**29, vector=2.0**27), 0.06),
        (pass_over(2**30, 0, vector=2.0**28), 0.06),
    ):
        assert seconds(kernel) == pytest.approx(float(model.estimate([kernel], H200).time[0]), rel=band)


def test_a_product_of_few_tiles_is_split() -> None:
    """One tile of 128 x 128 would keep one SM busy for all of K; its parts keep many."""
    terms = {term.symbol: term.value for term in simulator().explain(gemm(128, 128, 16384), H200).terms}
    assert terms["n"] > 8


def test_a_tile_more_than_the_sms_costs_far_more_than_its_work() -> None:
    """12 x 11 tiles of 128 x 128 keep all 132 SMs busy at once; 7 x 19 are 0.8 % more work, and one tile too many for that."""
    even, odd = seconds(gemm(12 * 128, 11 * 128, 8192)), seconds(gemm(7 * 128, 19 * 128, 8192))
    assert odd > 1.05 * even


def test_kinds_without_blocks_fall_back_with_a_reason() -> None:
    program = capture(lambda x, w: jnp.sort(x @ w), spec(512, 512), spec(512, 512), name="mixed")
    run = prepare(program, Options(on="h200", fidelity="simulated"))
    answered = {kernel.kind.value: run.kernels[kernel].estimator for kernel, _ in run.executed}
    assert answered["gemm"] == "multiprocessors"
    assert answered["sort"] == "analytical"
    shares = run.predict().provenance
    assert shares.simulated + shares.analytical == pytest.approx(1.0)
    grouped = convolution(8, 28, 64, 64)
    assert isinstance(grouped.geometry, Convolution)
    deep = replace(grouped, geometry=replace(grouped.geometry, feature_groups=64))
    assert "groups" in simulator().supports(deep, H200).reason
    assert "sort" in simulator().supports(replace(pass_over(8, 8), kind=KernelKind.SORT), H200).reason


def test_simulators_of_arrays_do_not_take_gpus() -> None:
    with pytest.raises(UnsupportedError, match="systolic arrays, and h200 has none"):
        load_simulator("scalesim", H200)


def test_bare_products_are_a_floor() -> None:
    product = gemm(2048, 2048, 2048)
    floor = least_seconds([product], H200, (simulator(),))[product.cost_key]
    assert 0 < floor <= seconds(product)


def test_taps_of_few_channels_are_loaded_no_wider_than_they_are() -> None:
    """A step has 128 bytes of a row; of 16 channels in bf16 there are 32, and what is beyond them is zeros that nobody loads."""
    kernel = convolution(64, 32, 16, 16)
    (moved,) = (term.value for term in simulator().explain(kernel, H200).terms if term.symbol == "B2")
    windows = 64 * 32 * 32 * 16 * 9 * 2
    filters = 64 * 32 * 32 / 64 * 16 * 16 * 9 * 2  # once for a tile of 64 rows or more
    assert 0.8 * windows < moved < 1.2 * (windows + filters + kernel.written_bytes)
