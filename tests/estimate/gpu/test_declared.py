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
