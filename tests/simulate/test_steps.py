"""Whole steps: bounded by the speed of light, linear in layers, equal for equal input; memory against the measured."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from meshcast import Options, prepare
from meshcast.estimate import estimate_kernels
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import Device, load_device
from meshcast.lower import LoweredProgram
from meshcast.simulate import Timeline, simulate
from tests.lower.programs import lower_function, spec

H100 = load_device("h100-sxm")
TRUTH = Path(__file__).parents[3] / "shared" / "groundtruth" / "h200"


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    h = jax.nn.softmax(x @ w, -1)
    return x + jnp.tanh(h @ w.T)


def unrolled(layers: int) -> LoweredProgram:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(layers):
            x = lax.optimization_barrier(layer(x, w))
        return x

    return lower_function(step, spec(1024, 512), spec(512, 2048))


def scanned(layers: int) -> LoweredProgram:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.fori_loop(0, layers, lambda _, y: layer(y, w), x)

    return lower_function(step, spec(1024, 512), spec(512, 2048))


def timeline(lowered: LoweredProgram, device: Device = H100) -> Timeline:
    return simulate(lowered, estimate_kernels(lowered, device, [Roofline()]), lambda _: 0.0)


def speed_of_light(lowered: LoweredProgram, device: Device) -> float:
    matrix = sum(n * k.matrix_flops for k, n in lowered.schedule.walk()) / max(device.matrix_flops.values())
    moved = sum(n * (k.read_bytes + k.written_bytes) for k, n in lowered.schedule.walk())
    return max(matrix, moved / max(device.memory_bandwidth, device.cache_bandwidth or 0.0))


@pytest.mark.parametrize("make", [unrolled, scanned])
def test_n_layers_cost_n_times(make: Any) -> None:
    two, four, nine = (timeline(make(n)).duration for n in (2, 4, 9))
    layer = (four - two) / 2  # a loop begins with copies of what it writes over, and counts its iterations
    assert two == pytest.approx(2 * layer, rel=0.2)
    assert nine == pytest.approx(four + 5 * layer, abs=5e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.sampled_from(["h100-sxm", "mi300x", "tpu-v5e", "v100-sxm2-32gb"]), st.floats(1, 4))
def test_a_step_keeps_to_the_speed_of_light_and_gains_from_bandwidth(layers: int, name: str, factor: float) -> None:
    device, lowered = load_device(name), unrolled(layers)
    run = timeline(lowered, device)
    assert run.duration >= speed_of_light(lowered, device)
    assert run.breakdown.total == pytest.approx(run.duration)
    faster = replace(device, memory_bandwidth=factor * device.memory_bandwidth)
    assert timeline(lowered, faster).duration <= run.duration


def test_equal_programs_give_equal_timelines() -> None:
    first, second = timeline(scanned(3)), timeline(scanned(3))
    assert first == second


@pytest.mark.skipif(not TRUTH.exists(), reason="the ground truth is not here")
@pytest.mark.parametrize(
    "name",
    [
        "gpt2-small-train-b8-s1024", "gpt2-small-infer-b8-s1024", "llama3-1b-train-b2-s2048",
        "llama3-8b-decode-b1-c4096", "resnet50-train-b128", "vitb16-train-b64", "dlrm26-train-b2048-z0.0",
    ],
)  # fmt: skip
def test_memory_of_whole_models_is_what_xla_assigned(name: str) -> None:
    with gzip.open(TRUTH / "measurements.jsonl.gz", "rt") as lines:
        xla = next(row["mem"] for line in lines if (row := json.loads(line))["id"] == name)
    run = prepare(str(TRUTH / "programs" / f"{name}.mlir.gz"), Options(on="h200"))
    ours = run.memory
    assert (ours.arguments, ours.aliased) == (xla["args"], xla["alias"])
    assert ours.outputs == pytest.approx(xla["out"], rel=1e-3, abs=4096)
    assert ours.temporaries == pytest.approx(xla["temp"], rel=0.2)
