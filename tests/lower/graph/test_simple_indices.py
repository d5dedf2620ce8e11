"""Gathers and scatters of one index are slices and updates; updates of constants are passes like any other."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import KernelKind
from tests.lower.programs import kernels, lower_function, spec

ROWS, INDEX = spec(1024, 256), spec(dtype="int32")
SIZE = 1024 * 256 * 4


def test_one_row_is_written_in_place_and_read_as_a_slice() -> None:
    def step(x: jax.Array, row: jax.Array, i: jax.Array) -> jax.Array:
        return x.at[i].set(row * 2)

    (kernel,) = kernels(lower_function(step, ROWS, spec(256), INDEX, options={"donate_argnums": 0}))
    assert kernel.kind is KernelKind.LOOP_FUSION
    assert kernel.updates == (0,)
    assert kernel.written_bytes == 256 * 4
    (kernel,) = kernels(lower_function(lambda x, i: x[i], ROWS, INDEX))
    assert kernel.kind is KernelKind.LOOP_FUSION


def test_several_rows_stay_a_scatter() -> None:
    made = kernels(lower_function(lambda x, i: x.at[i].add(1.0), ROWS, spec(4, dtype="int32")))
    assert KernelKind.SCATTER in [kernel.kind for kernel in made]


def test_zeros_with_a_row_set_are_one_pass_with_what_reads_them() -> None:
    """Neither zeros nor a copy of them are written first, however many arrays begin with them."""

    def step(row: jax.Array, x: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        zeros = jnp.zeros((1024, 256))
        return zeros.at[i].set(row) * x, jax.lax.dynamic_update_slice(zeros, row[None], (i + 1, 0))

    made = kernels(lower_function(step, spec(256), ROWS, INDEX))
    assert all(kernel.kind is KernelKind.LOOP_FUSION and not kernel.updates for kernel in made)
    assert "copy" not in [name for kernel in made for name in kernel.ops]
    assert sum(kernel.written_bytes for kernel in made) == 2 * SIZE
