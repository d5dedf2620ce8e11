"""XLA's cost model of fusion: what is computed again, and what is written out once."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import KernelKind
from tests.lower.programs import kernels, lower_function, spec


def test_a_slow_function_of_large_arrays_is_computed_once() -> None:
    """tanh: 467 cycles an element, more than the memory that two readers would save."""

    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        t = jnp.tanh(x)
        return (t + 1) @ y, jnp.sum(t * y, 0)

    made = kernels(lower_function(step, spec(4096, 4096), spec(4096, 4096)))
    assert sum(k.transcendentals for k in made) == 4096 * 4096


def test_a_cheap_function_of_large_arrays_is_computed_again() -> None:
    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        t = jnp.abs(x)
        return t @ y, jnp.sum(t.T * y, 0)

    made = kernels(lower_function(step, spec(4096, 4096), spec(4096, 4096)))
    assert len([k for k in made if k.kind is KernelKind.LOOP_FUSION and "stablehlo.abs" in k.ops]) <= 1


def test_small_arrays_are_computed_again_for_the_sake_of_a_launch() -> None:
    """A launch is worth a microsecond: a thousand logarithms take a few nanoseconds."""

    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        t = jnp.log(x)
        return t + y, jnp.sum(t.reshape(4, 256) * 2, 1)

    made = kernels(lower_function(step, spec(1024), spec(1024)))
    assert sum(k.transcendentals for k in made) == 2 * 1024


def test_a_power_of_two_is_a_product() -> None:
    (kernel,) = kernels(lower_function(lambda x: jax.lax.pow(x, jnp.full((512, 512), 2.0)), spec(512, 512)))
    assert kernel.transcendentals == 0
    (kernel,) = kernels(lower_function(lambda x: jax.lax.pow(x, jnp.full((512, 512), 1.5)), spec(512, 512)))
    assert kernel.transcendentals == 512 * 512


def test_what_follows_from_constants_alone_is_no_kernel() -> None:
    """XLA folds the comparison; the select is one of its operands, so that the norm is still a row fusion."""

    def step(x: jax.Array) -> jax.Array:
        mean = jnp.where(jnp.float32(768) > 0, jnp.sum(x, -1, keepdims=True) / 768, jnp.nan)
        return x - mean

    (kernel,) = kernels(lower_function(step, spec(4096, 768)))
    assert kernel.kind is KernelKind.REDUCTION
