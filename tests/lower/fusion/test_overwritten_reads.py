"""What an update in place may compute of the array that it writes into."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import Kernel, KernelKind
from tests.lower.programs import kernels, lower_function, spec

LAYERS, ROWS, COLUMNS = 4, 32768, 128
STACK, PART = LAYERS * ROWS * COLUMNS * 4, ROWS * COLUMNS * 4


def lowered(function: Callable[..., object], *others: jax.ShapeDtypeStruct) -> list[Kernel]:
    return kernels(lower_function(function, spec(LAYERS, ROWS, COLUMNS), *others))


def layer_with_a_row(stack: jax.Array, row: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A layer's part is cut out, given a row, summed along rows, and put back."""
    part = lax.dynamic_update_slice(stack[2], row, (place, 0))
    return lax.dynamic_update_slice(stack, part[None], (2, 0, 0)), jnp.sum(part * part, -1)


def test_a_part_that_is_cut_out_updated_and_put_back_is_written_first() -> None:
    """XLA's `input_reduce_slice_fusion` hands the slice on to the update of the stack, which would read what it writes."""
    made = lowered(layer_with_a_row, spec(1, COLUMNS), spec(dtype="int32"))
    (summed,) = [kernel for kernel in made if kernel.kind is KernelKind.REDUCTION]
    (stacked,) = [kernel for kernel in made if kernel.updates]
    assert "aside" in summed.flags
    assert summed.written_bytes == PART + 4 * ROWS
    assert len(set(summed.writes) & set(stacked.reads)) == 1
    assert stacked.written_bytes == PART


@pytest.mark.parametrize("place", ["static", "dynamic"])
def test_the_very_part_that_is_written_may_be_read_on_the_way(place: str) -> None:
    def updated(stack: jax.Array, at: jax.Array) -> jax.Array:
        if place == "static":
            return lax.dynamic_update_slice(stack, jnp.sin(stack[2:3]), (2, 0, 0))
        part = lax.dynamic_slice(stack, (at, 0, 0), (1, ROWS, COLUMNS))
        return lax.dynamic_update_slice(stack, jnp.sin(part), (at, 0, 0))

    (stacked,) = [kernel for kernel in lowered(updated, spec(dtype="int32")) if kernel.updates]
    assert "stablehlo.sine" in stacked.ops


def test_another_part_than_the_one_that_is_written_is_written_down_first() -> None:
    def moved(stack: jax.Array, here: jax.Array, there: jax.Array) -> jax.Array:
        part = lax.dynamic_slice(stack, (here, 0, 0), (1, ROWS, COLUMNS))
        return lax.dynamic_update_slice(stack, jnp.sin(part), (there, 0, 0))

    index = spec(dtype="int32")
    made = [kernel for kernel in lowered(moved, index, index) if "sine" in kernel.ops[-1] or kernel.updates]
    assert [bool(kernel.updates) for kernel in made] == [False, True]
    assert made[0].written_bytes == PART
