"""What a loop hands from turn to turn."""

from __future__ import annotations

import jax

from tests.lower.programs import loops, lower_function, spec


def test_a_loop_says_what_it_carries_and_what_of_it_unchanged() -> None:
    """A matrix goes through four turns as it is; the counter and the product do not."""

    def function(matrix: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 4, lambda _, x: x @ matrix, x)

    lowered = lower_function(function, spec(64, 64), spec(16, 64))
    (loop,) = loops(lowered)
    shapes = {lowered.tensors[each.initial].shape: each for each in loop.carried}
    assert {shape: each.unchanged for shape, each in shapes.items()} == {(64, 64): True, (): False, (16, 64): False}
    assert [each.result for each in loop.carried] == list(loop.writes)
    assert shapes[16, 64].result in lowered.schedule.outputs
