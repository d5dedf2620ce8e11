"""Calls of declared cost."""

from __future__ import annotations

import pytest

from meshcast.estimate import estimate_each
from meshcast.hardware import resolve
from meshcast.lower import Kernel, KernelKind
from meshcast.options import Options, chosen_estimators


@pytest.mark.parametrize("on", ["v100-sxm2-32gb", "h100-sxm"])
def test_operations_of_a_call_that_says_no_results_are_shared_by_threads(on: str) -> None:
    """An operation for every four bytes that are moved hides behind them; one thread would take a hundred times as long."""
    device = resolve(on).device
    estimators, _ = chosen_estimators(Options(on=on), device)
    plain, busy = (
        Kernel(name="call", kind=KernelKind.CUSTOM, dtype="f32", vector_flops=flops, read_bytes=10**8)
        for flops in (0.0, 25e6)
    )
    found = estimate_each((plain, busy), device, estimators)
    assert found[plain].time == pytest.approx(1e8 / device.memory_bandwidth, rel=0.4)
    assert found[busy].time == pytest.approx(found[plain].time, rel=0.1)


def test_a_call_of_products_is_limited_by_them_and_not_by_memory() -> None:
    """7 TFLOP at some 900 TFLOP/s take 7 ms and more, 3.5 GB at 3.35 TB/s take one: arithmetic is what limits."""
    device = resolve("h100-sxm").device
    estimators, _ = chosen_estimators(Options(on="h100-sxm"), device)
    product, copy = (
        Kernel(name="call", kind=KernelKind.CUSTOM, dtype="bf16", matrix_flops=flops, read_bytes=3_500_000_000)
        for flops in (7e12, 7e9)
    )
    found = estimate_each((product, copy), device, estimators)
    assert found[product].time > 0.007
    assert (found[product].limited_by, found[copy].limited_by) == ("compute", "memory")
    assert found[product].compute_time > 0.9 * found[product].time
