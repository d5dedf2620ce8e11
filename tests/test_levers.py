"""What a lever saves, and what it must not."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from meshcast.capture import capture
from meshcast.levers import find_levers
from meshcast.pipeline import Options, Run, prepare

RECOMPUTING = "keep activations instead of recomputing them"


def step(wrap: Callable[[Callable[..., jax.Array]], Callable[..., jax.Array]]) -> Run:
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.sin(x @ w) @ w)

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(4):
            x = wrap(layer)(x, w)
        return jnp.sum(x)

    shape = jax.ShapeDtypeStruct((512, 512), "float32")
    program = capture(jax.grad(loss, argnums=1), shape, shape, name="step")
    return prepare(program, Options(on="h200", fidelity="analytical"))


def test_keeping_activations_saves_the_recomputed_kernels_and_no_other_gaps() -> None:
    run = step(jax.checkpoint)
    assert run.kernels.gap > 0
    recomputed = [run.kernels[kernel].time for kernel, _ in run.executed if kernel.recomputed]
    assert 0 < len(recomputed) < len(run.executed)
    (lever,) = [lever for lever in find_levers(run, limit=10) if lever.change == RECOMPUTING]
    assert lever.saved_s == pytest.approx(sum(recomputed) + len(recomputed) * run.kernels.gap)
    kept = [run.kernels[kernel].time for kernel, _ in run.executed if not kernel.recomputed]
    assert lever.step_time_s == pytest.approx(sum(kept) + (len(kept) - 1) * run.kernels.gap)


def test_without_recomputation_there_is_nothing_to_keep() -> None:
    assert RECOMPUTING not in {lever.change for lever in find_levers(step(lambda layer: layer), limit=10)}
