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


def test_what_leads_to_a_value_over_several_ways_is_computed_once_with_it() -> None:
    """The sine is read twice, but all ways from it meet before two reductions, along rows and columns, read the end."""

    def step(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        t = jnp.sin(x)
        met = (t * y) + (t - y)
        return jnp.sum(met, 0), jnp.max(met, 1)

    made = kernels(lower_function(step, spec(4096, 4096), spec(4096, 4096)))
    assert sum(k.transcendentals for k in made) == 4096 * 4096


def test_an_uneven_join_is_written_once_for_several_readers() -> None:
    def step(x: jax.Array, y: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
        joined = jnp.concatenate([x[:, :width], y], 1)
        return jnp.sum(joined, 0), jnp.max(joined, 1)

    def joins(width: int) -> int:
        made = kernels(lower_function(lambda x, y: step(x, y, width), spec(4096, 4096), spec(4096, 4096)))
        return sum("stablehlo.concatenate" in k.ops for k in made)

    assert joins(7) == 1
    assert joins(64) == 2


def test_slices_ask_a_join_for_their_own_elements_alone() -> None:
    """Two rolls: the second join asks the first one for every element once, in two slices."""
    made = kernels(lower_function(lambda x: jnp.roll(jnp.roll(x, 5, 0), 7, 1), spec(4096, 4096)))
    assert len(made) == 1


def test_a_mask_is_computed_in_every_softmax_that_reads_it() -> None:
    """Rows of 4 KiB spread over 64 MiB: six softmaxes that read it would take longer than they take to compute it."""

    def step(valid: jax.Array, scores: jax.Array) -> list[jax.Array]:
        mask = (valid[:, None, None, :] & valid[:, None, :, None]) & jnp.ones((1, 16, 1, 1), bool)
        return [jax.nn.softmax(jnp.where(mask, scores * scale, -1e9)) for scale in range(1, 7)]

    made = kernels(lower_function(step, spec(4, 1024, dtype="bool"), spec(4, 16, 1024, 1024)))
    assert not [kernel for kernel in made if kernel.written_bytes == 4 * 16 * 1024 * 1024]


def test_what_follows_a_product_of_bytes_is_a_kernel_of_its_own() -> None:
    """The library has the faster kernels for those, and takes no casts in."""

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return (jnp.matmul(x, w, preferred_element_type=jnp.float32) * 0.5).astype(x.dtype)

    def count(dtype: str) -> int:
        made = kernels(lower_function(step, spec(4096, 4096, dtype=dtype), spec(4096, 4096, dtype=dtype)))
        return sum(KernelKind.LOOP_FUSION is kernel.kind and bool(kernel.reads) for kernel in made)

    assert (count("float8_e4m3fn"), count("bfloat16")) == (1, 0)
