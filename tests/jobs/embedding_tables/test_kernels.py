"""Look-ups and updates: what bounds them where, and the measured half that no parameter was fitted on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshcast.hardware import load_device
from meshcast.jobs import Distribution, EmbeddingKernels, LookUps, traffic_of

H200 = load_device("h200")
WORK = LookUps(picked=Distribution().over(50_000_000), dim=128, element_bytes=4, look_ups=6.5e6, bags=65536)


def _forward(work: LookUps, kernels: EmbeddingKernels) -> float:
    moved = traffic_of(work, kernels.device)
    return float(kernels.forward_call(kernels.forward(moved), kernels.forward_block(moved)))


def _backward(work: LookUps, kernels: EmbeddingKernels) -> float:
    moved = traffic_of(work, kernels.device)
    return float(kernels.backward_call(kernels.backward(moved), kernels.backward_chain(moved)))


def test_rows_out_of_memory_take_the_memorys_time() -> None:
    moved = traffic_of(WORK, H200)
    least = moved.missed * 512 / H200.memory_bandwidth
    assert least < _forward(WORK, EmbeddingKernels(device=H200)) < 1.5 * least


def test_a_table_in_cache_and_a_skewed_one_are_looked_up_sooner() -> None:
    kernels = EmbeddingKernels(device=H200)
    even = _forward(WORK, kernels)
    assert _forward(replace(WORK, picked=Distribution().over(10_000)), kernels) < 0.5 * even
    assert _forward(replace(WORK, picked=Distribution(kind="zipf", skew=1.2).over(50_000_000)), kernels) < 0.6 * even


def test_times_grow_with_the_work() -> None:
    kernels = EmbeddingKernels(device=H200)
    for model in (_forward, _backward):
        times = [model(replace(WORK, look_ups=n), kernels) for n in (65536, 655360, 6.5e6)]
        assert times == sorted(times)
        assert model(replace(WORK, dim=256), kernels) > model(WORK, kernels)
        wide = replace(H200, memory_bandwidth=2 * H200.memory_bandwidth)
        assert model(WORK, EmbeddingKernels(device=wide)) < model(WORK, kernels)


def test_elements_of_two_bytes_taken_one_by_one_cost_more() -> None:
    half = replace(WORK, element_bytes=2)
    assert _forward(half, EmbeddingKernels(device=H200)) < _forward(WORK, EmbeddingKernels(device=H200))
    assert _forward(half, EmbeddingKernels(device=H200, by_element=True)) > _forward(
        half, EmbeddingKernels(device=H200)
    )


def test_formulas_take_arrays_of_tables() -> None:
    kernels = EmbeddingKernels(device=H200)
    one, other = traffic_of(WORK, H200), traffic_of(replace(WORK, dim=64), H200)
    names = type(one).__slots__
    arrays: dict[str, Any] = {name: np.array([getattr(one, name), getattr(other, name)]) for name in names}
    both = type(one)(**arrays)
    for model in (kernels.forward, kernels.backward, kernels.forward_block, kernels.backward_chain):
        assert np.asarray(model(both)).tolist() == pytest.approx([float(model(one)), float(model(other))])


def test_rows_in_host_memory_cross_the_link_where_a_cache_misses_them() -> None:
    kernels = EmbeddingKernels(device=H200)
    cached = [kernels.from_host(replace(WORK, cached=share)) for share in (None, 1.0, 0.5, 0.1)]
    assert cached[:2] == [0.0, 0.0]
    different = WORK.picked.different(WORK.look_ups)
    assert H200.host_bandwidth is not None
    assert cached[2] == pytest.approx(0.5 * different * 512 / H200.host_bandwidth, rel=0.01)
    assert cached[3] > cached[2]


def test_a_turn_waits_for_the_last_of_its_rows() -> None:
    """Of 32 rows that a warp loads at a time one is out of memory in 1 - 0.98^32 of its turns where one in fifty is missed."""
    kernels = EmbeddingKernels(device=H200)
    moved = replace(traffic_of(replace(WORK, dim=16), H200), look_ups=1e6, grouped=32.0, most_turns=10.0)
    held, rarely, always = (
        float(kernels.forward_block(replace(moved, missed=share * 1e6))) for share in (0.0, 0.02, 1.0)
    )
    assert (rarely - held) / (always - held) == pytest.approx(1 - 0.98**32)
    assert (always - held) * H200.clock_hz == pytest.approx(10 * kernels.look_up.miss_cycles)


def test_hits_that_are_known_replace_those_that_follow_from_the_indices() -> None:
    kernels = EmbeddingKernels(device=H200)
    different = WORK.picked.different(WORK.look_ups)
    assert H200.host_bandwidth is not None
    half = kernels.from_host(replace(WORK, cached=0.1, hits=0.5))
    assert half == pytest.approx(0.5 * different * 512 / H200.host_bandwidth)
    assert kernels.from_host(replace(WORK, cached=0.1, hits=1.0)) == 0.0
