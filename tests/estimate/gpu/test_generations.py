"""What carries the H200's parameters to other GPUs: cycles, generations, cache partitions, energies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.estimate.estimator import Clocks
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.machine import GpuMachine
from meshcast.estimate.gpu.memory import hit_share
from meshcast.estimate.gpu.parameters import shipped_gpu_calibration
from meshcast.estimate.gpu.tile_ways import TiledProduct
from meshcast.estimate.gpu.tiles import product_time
from meshcast.estimate.power import settled_clock
from meshcast.hardware import Device, load_device
from tests.estimate.conformance import gemm

PARAMETERS = shipped_gpu_calibration().parameters
MIB = 2**20


def machine(name: str) -> GpuMachine:
    return GpuMachine(device=load_device(name), parameters=PARAMETERS)


def product(m: int, n: int, k: int, peak: float) -> TiledProduct:
    read, written = 2.0 * k * (m + n), 2.0 * m * n
    return TiledProduct(batch=1, m=m, n=n, k=k, width=2, peak=peak, split=False, read=read, written=written)


def clock_share(device: Device, clocks: Clocks) -> float:
    draw = GpuAnalytical().estimate([gemm(8192, 8192, 8192)], device).draw
    assert draw is not None
    return settled_clock(draw, np.ones(1), device, clocks)


def test_one_tile_of_one_step_is_a_launch_a_prologue_and_a_store() -> None:
    """64 x 64 x 64: one step, at least a load's latency over eight stages; no time between tiles."""
    h200 = machine("h200")
    work = product_time(product(64, 64, 64, 989.4e12), h200)
    fixed = h200.launch + PARAMETERS.prologue_cycles / h200.clock
    step = PARAMETERS.load_cycles / 8 / h200.clock
    stored = 2 * 64 * 64 / h200.cache_bandwidth
    assert work.time == pytest.approx(fixed + step + stored, rel=0.01)


def test_latencies_follow_the_clock() -> None:
    slow, fast = machine("a100-sxm-80gb"), machine("h200")
    tiny = product(64, 64, 64, 312e12)
    ratio = (product_time(tiny, slow).time - slow.launch) / (product_time(tiny, fast).time - fast.launch)
    assert ratio == pytest.approx(1.98 / 1.41, rel=0.05)


@pytest.mark.parametrize(
    ("name", "peak", "share"),
    [("h200", 66.9e12, PARAMETERS.plain_share), ("v100-sxm2-32gb", 15.7e12, PARAMETERS.tensor_share)],
)
def test_cores_that_are_busy_for_two_cycles_leave_places_for_loads(name: str, peak: float, share: float) -> None:
    """f32 products of an H200, of 32 cores a scheduler, and of a V100, of 16: each beside its share of the peak."""
    device = load_device(name)
    seconds = (
        GpuAnalytical().estimate([gemm(8192, 8192, 8192, dtype="f32", out="f32", precision="HIGHEST")], device).time[0]
    )
    assert 2 * 8192**3 / seconds / peak == pytest.approx(share, rel=0.1)


@given(m=st.integers(1, 4096), n=st.integers(1, 4096), k=st.integers(8, 8192))
@settings(max_examples=40, deadline=None)
def test_more_shared_memory_is_never_slower(m: int, n: int, k: int) -> None:
    ada = machine("l40s")
    assert ada.device.core is not None
    assert ada.shared_bytes == 100 * 1024
    core = replace(ada.device.core, shared_memory_bytes=164 * 1024)
    more = GpuMachine(device=replace(ada.device, core=core), parameters=PARAMETERS)
    wanted = product(m, n, k, 362e12)
    assert product_time(wanted, more).time <= product_time(wanted, ada).time * (1 + 1e-12)


@given(
    m=st.integers(1, 3000), n=st.integers(1, 3000), k=st.integers(8, 9000), name=st.sampled_from(["b200", "h100-sxm"])
)
@settings(max_examples=40, deadline=None)
def test_more_rows_and_a_longer_sum_are_never_much_faster(m: int, n: int, k: int, name: str) -> None:
    """The tiles of the larger product are a choice for the smaller one too, but for clusters: two rows of tiles share the
    fetch of a column, one row has nobody to share it with.
    """
    gpu = machine(name)
    time = product_time(product(m, n, k, 989e12), gpu).time
    assert product_time(product(2 * m, n, k, 989e12), gpu).time >= 0.95 * time
    assert product_time(product(m, n, 2 * k, 989e12), gpu).time >= 0.999 * time


def test_a_cache_in_one_part_holds_more_of_its_capacity() -> None:
    h200 = machine("h200")
    whole = GpuMachine(device=replace(h200.device, cache_partitions=1), parameters=PARAMETERS)
    assert h200.device.cache_reach == pytest.approx(0.85 * 60 * MIB)
    assert hit_share(0.85 * 40 * MIB, 0, h200) == pytest.approx(hit_share(1.05 * 40 * MIB, 0, whole))
    assert load_device("l40s").cache_reach == pytest.approx(1.05 * 96 * MIB)


def test_an_a100_nearly_keeps_its_clock_and_a_b200_does_not() -> None:
    """1.245 pJ at the full clock, as published: 257 TFLOP/s draw 320 W beside 80 W of the rest, all of an A100's 400 W."""
    assert 0.97 < clock_share(load_device("a100-sxm-80gb"), "sustained") < 1.0
    assert 0.6 < clock_share(load_device("b200"), "sustained") < clock_share(load_device("b200"), "burst") < 0.85


def test_a_device_without_facts_of_its_cores_gets_little_shared_memory_and_no_clusters() -> None:
    amd = machine("mi300x")
    assert amd.shared_bytes == 64 * 1024
    assert not amd.generation.clusters
    assert machine("h200").generation.clusters
    assert machine("b200").generation.paired
