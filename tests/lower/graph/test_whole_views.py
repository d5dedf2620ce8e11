"""Pads of nothing, gathers of all and joins of one: names of their operand, as XLA's algebraic simplifier leaves none of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.lower.programs import kernels, lower_function, spec


@pytest.mark.parametrize(("edges", "count"), [((0, 0), 1), ((-1, 1), 2)])
def test_a_pad_of_nothing_is_a_view_and_one_that_shifts_is_not(edges: tuple[int, int], count: int) -> None:
    def step(x: jax.Array) -> jax.Array:
        return jnp.fft.fft(lax.pad(x, jnp.complex64(0), [(*edges, 0)]))

    assert len(kernels(lower_function(step, spec(4096, dtype="complex64")))) == count


def test_one_slice_of_all_is_a_view() -> None:
    dimensions = lax.GatherDimensionNumbers(offset_dims=(0, 1), collapsed_slice_dims=(), start_index_map=(1,))

    def step(x: jax.Array) -> jax.Array:
        return jnp.fft.fft(lax.gather(x, jnp.zeros((1,), "int32"), dimensions, (32, 128)))

    (only,) = kernels(lower_function(step, spec(32, 128, dtype="complex64")))
    assert only.read_bytes == 32 * 128 * 8
