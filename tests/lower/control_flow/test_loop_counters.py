"""Counters of loops that agree: one of them is handed on, as XLA's while_loop_simplifier merges them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import LoopStep
from tests.lower.programs import lower_function, spec


def turn(function: object, *args: object) -> list[str]:
    """The names of the kernels of one turn."""
    lowered = lower_function(function, *args)  # type: ignore[arg-type]
    (loop,) = [step for step in lowered.schedule.steps if isinstance(step, LoopStep)]
    return [kernel.name for kernel, _ in loop.body.walk()]


@pytest.mark.parametrize(("first", "adding"), [(0, 1), (2, 2)])
def test_the_index_of_a_fori_loop_is_the_counter_of_its_scan(first: int, adding: int) -> None:
    """An index that begins at another number than the scan's counter is not told to agree with it."""

    def looped(x: jax.Array) -> jax.Array:
        return lax.fori_loop(first, first + 8, lambda i, y: jnp.sin(y) + i, x)

    assert turn(looped, spec(4096)).count("loop-fusion:add") == adding + 1  # one is the sine's


def test_numbers_that_grow_otherwise_stay_apart() -> None:
    def looped(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
            y, n = carry
            return (jnp.sin(y) * n, n + 3), None

        return lax.scan(step, (x, jnp.int32(0)), None, length=8)[0]

    assert turn(looped, spec(4096)).count("loop-fusion:add") == 2
