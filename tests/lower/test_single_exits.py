"""Which op all that is made of a value goes through, and that its whole cone counts when it is computed again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower.single_exits import NO_EXIT, single_exits
from tests.lower.programs import kernels, lower_function, spec


@pytest.mark.parametrize(
    ("readers", "exits"),
    [
        ([[1], [2], []], [1, 2, NO_EXIT]),  # a chain
        ([[1, 2], [3], [3], []], [3, 3, 3, NO_EXIT]),  # a diamond
        ([[1, 2], [2, 3], [3], [4], []], [3, 3, 3, 4, NO_EXIT]),  # rounds that read each other
        ([[1, 2], [], []], [NO_EXIT, NO_EXIT, NO_EXIT]),  # two results
        ([[1, 3], [2], [], []], [NO_EXIT, 2, NO_EXIT, NO_EXIT]),
    ],
)
def test_an_exit_is_where_all_readers_meet(readers: list[list[int]], exits: list[int]) -> None:
    assert single_exits(readers) == exits


def test_rounds_that_read_each_other_are_computed_once() -> None:
    """A generator's two halves are no chain of single readers, and yet nothing but their sum leaves them."""

    def step(x: jax.Array, *others: jax.Array) -> tuple[jax.Array, ...]:
        a, b = x, x * 3
        for turn in range(40):
            a = a + b
            b = (b * (turn + 2)) ^ a
        drawn = jnp.concatenate([a, b])
        return tuple(jnp.sum(other * jnp.roll(drawn, i), 0) for i, other in enumerate(others))

    made = kernels(lower_function(step, spec(1 << 20, dtype="int32"), *[spec(1 << 21, dtype="int32")] * 3))
    drawing = [kernel for kernel in made if kernel.vector_flops > 100 * (1 << 20)]
    assert len(drawing) == 1
