"""Updates of slices inside the kernels that read them: each case as XLA:GPU 0.11.2 compiles it for an H200 ahead of time."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import Kernel
from tests.lower.programs import kernels, lower_function, spec

SIZE, ROW = 512 * 1024 * 4, 1024 * 4
X, STACK, UPDATE, AT = spec(512, 1024), spec(4, 512, 1024), spec(1, 1024), spec(dtype="int32")


def made(function: Callable[..., object], *arguments: jax.ShapeDtypeStruct) -> list[Kernel]:
    return kernels(lower_function(function, *arguments))


def updated(x: jax.Array, row: jax.Array, at: jax.Array) -> jax.Array:
    return lax.dynamic_update_slice(x, row, (at, 0))


@pytest.mark.parametrize("target", [X, STACK])
def test_an_update_that_is_only_summed_is_never_in_memory(target: jax.ShapeDtypeStruct) -> None:
    """Neither of a copy of an argument, nor of a slice of one."""
    (kernel,) = made(lambda x, row, at: updated(x.reshape(-1, 512, 1024)[-1], row, at).sum(1), target, UPDATE, AT)
    assert not kernel.updates
    assert SIZE + ROW <= kernel.read_bytes <= SIZE + ROW + 8
    assert kernel.written_bytes == 512 * 4


def test_two_updates_in_a_row_are_one_pass_with_what_reads_them() -> None:
    (kernel,) = made(lambda x, row, at: jnp.exp(updated(updated(x, row, at), row * 2, at + 3)), X, UPDATE, AT)
    assert kernel.written_bytes == SIZE


def test_rows_set_in_parts_of_an_array_are_put_together_without_copies() -> None:
    """A decoder's keys and values in one array: nothing but the new array is written, however many layers it has."""

    def step(cache: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        layers = [updated(cache[layer], row, at) for layer in range(4)]
        return jnp.stack(layers), [layer.sum(1) for layer in layers]

    found = made(step, STACK, UPDATE, AT)
    assert sum(kernel.written_bytes for kernel in found) == 4 * SIZE + 4 * 512 * 4
    assert not any(kernel.updates for kernel in found)


def test_an_update_that_is_returned_or_multiplied_is_done_in_place() -> None:
    def step(x: jax.Array, row: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = updated(x, row, at)
        return y, y.sum(1)

    copy, update, _ = made(step, X, UPDATE, AT)
    assert update.updates == copy.writes
    product = made(lambda x, row, at: updated(x, row, at) @ x.T, X, UPDATE, AT)
    assert [kernel.updates for kernel in product if kernel.updates]


def test_arithmetic_that_makes_the_target_is_in_the_same_pass() -> None:
    (kernel,) = made(lambda x, row, at: updated(jnp.tanh(x), row, at), X, UPDATE, AT)
    assert kernel.written_bytes == SIZE
    assert not kernel.updates
