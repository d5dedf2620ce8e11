"""What limits a kernel: the resource that alone would take longest, whatever the device, the type and the fidelity."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import Options, Run, capture, predict, prepare
from meshcast.estimate.chain import EstimatedKernels, KernelEstimate
from meshcast.estimate.estimator import Origin, limiting
from meshcast.estimate.power import PowerLaw

SIDE = 4096
DTYPES = {"i8": jnp.int8, "bf16": jnp.bfloat16, "f32": jnp.float32}
# One op a program: they write, copy, pick or turn data around, and compute nothing.
MOVING: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "broadcast": (lambda x: jnp.broadcast_to(x, (SIDE, 4 * SIDE)), ((4 * SIDE,),)),
    "fill": (lambda x: jnp.full((SIDE, 4 * SIDE), x[0]), ((1,),)),
    "transpose": (lambda x: x.T, ((SIDE, 4 * SIDE),)),
    "reverse": (lambda x: x[::-1], ((SIDE, 4 * SIDE),)),
    "slice": (lambda x: x[:, ::2], ((SIDE, 4 * SIDE),)),
    "pad": (lambda x: jnp.pad(x, 1), ((SIDE, 4 * SIDE),)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y]), ((SIDE, 4 * SIDE), (SIDE, 4 * SIDE))),
    "gather": (lambda x: x[jnp.arange(0, 1 << 20, 2) * 7 % (1 << 20)], ((1 << 20, 128),)),
}
DEVICES = [
    ("h200", "profiled"), ("h200", "analytical"), ("h200", "roofline"), ("mi300x", "analytical"),
    ("a100-sxm-80gb", "analytical"), ("tpu-v6e", "analytical"), ("tpu-v5p", "analytical"), ("tpu-v4", "roofline"),
]  # fmt: skip


def program(op: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], dtype: str) -> Any:
    """A captured program of one op."""
    return capture(op, *(jax.ShapeDtypeStruct(shape, DTYPES[dtype]) for shape in shapes))


def shares(run: Run) -> dict[str, float]:
    """The step's parts as shares of it; they add up to 1."""
    found = run.timeline.breakdown
    assert found.total == pytest.approx(run.timeline.duration, rel=1e-9)
    return {name: getattr(found, name) / found.total for name in ("compute", "memory", "overhead", "idle")}


@pytest.mark.parametrize(("name", "dtype"), itertools.product(MOVING, DTYPES))
def test_what_computes_nothing_is_never_bound_by_compute(name: str, dtype: str) -> None:
    target = program(*MOVING[name], dtype)
    for device, fidelity in DEVICES:
        run = prepare(target, Options(on=device, fidelity=fidelity))
        found = shares(run)
        assert found["compute"] < 0.01, (device, fidelity)  # indices of a gather are computed
        assert found["memory"] > 0.8, (device, fidelity)
        assert run.predict().top_kernels[0].limited_by == "memory", (device, fidelity)


@pytest.mark.parametrize(("device", "fidelity"), DEVICES)
def test_products_are_bound_by_compute_and_small_kernels_by_latency(device: str, fidelity: str) -> None:
    options = Options(on=device, fidelity=fidelity)
    large = shares(prepare(program(jnp.matmul, ((16384, 16384), (16384, 16384)), "bf16"), options))
    assert large["compute"] > 0.95
    if fidelity != "roofline":  # light knows no launches
        assert shares(prepare(program(lambda x: x + x, ((16,),), "f32"), options))["overhead"] > 0.95


def test_no_lever_promises_faster_arithmetic_where_there_is_none() -> None:
    found = predict(program(*MOVING["concatenate"], "f32"), on="h200", fidelity="analytical", levers=True)
    assert found.levers
    assert not any("arithmetic" in lever.change for lever in found.levers)


@pytest.mark.parametrize(
    ("compute", "memory", "overhead", "cores", "answer"),
    [
        (3.0, 2.0, 1.0, 3.0, "compute"),
        (2.0, 3.0, 1.0, 2.0, "memory"),
        (2.0, 1.0, 0.0, 3.0, "memory"),  # cores that carry data longer than they compute
        (0.0, 1.0, 0.0, 4.0, "memory"),
        (1.0, 2.0, 4.0, 3.0, "latency"),
        (2.0, 2.0, 0.0, 2.0, "compute"),
    ],
)
def test_the_longest_resource_limits(compute: float, memory: float, overhead: float, cores: float, answer: str) -> None:
    assert limiting(compute, memory, overhead, cores) == answer


def test_at_a_lower_clock_carrying_data_takes_longer_and_stays_memory() -> None:
    law = PowerLaw(frequency_power=1.0, burst_limit=1.0, burst_window=0.0, least_watts=0.0)
    estimate = KernelEstimate(
        time=4.5, low=4.0, high=5.0, compute_time=1.0, memory_time=2.0, core_time=4.0, overhead=0.5, energy=1.0,
        origin=Origin.ANALYTICAL, estimator="analytical", clocked=1.0,
    )  # fmt: skip
    key: Any = "its cost"
    slower = EstimatedKernels(by_key={key: estimate}, law=law).at_clock(0.5).by_key[key]
    assert (slower.time, slower.core_time, slower.compute_time, slower.memory_time) == (9.0, 8.0, 2.0, 2.0)
    assert slower.limited_by == "memory"
    assert slower.moves_data
    shorter = estimate.taking(3.0)
    assert shorter == replace(estimate, time=3.0)
    assert shorter.moves_data
