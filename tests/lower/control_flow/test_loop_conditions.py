"""Conditions of loops that end on data are kernels of their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from meshcast.lower import KernelKind, LoopStep
from meshcast.lower.control_flow.loop_conditions import QUESTION
from tests.lower.programs import all_loops, kernels, loops, lower_function, spec


def solved(x: jax.Array) -> jax.Array:
    """Turns until the largest element is small: the condition is a maximum of all elements."""
    return jax.lax.while_loop(lambda s: jnp.max(jnp.abs(s)) > 1e-3, lambda s: jnp.sin(s) * 0.5, x)


def counts(step: LoopStep) -> list[KernelKind]:
    return [kernel.kind for kernel in step.body.steps]  # type: ignore[union-attr]


def test_a_condition_is_asked_before_the_loop_and_behind_every_turn() -> None:
    """The maximum is in no kernel with the sine, though it reads nothing else."""
    lowered = lower_function(solved, spec(512))
    (loop,) = loops(lowered)
    reductions = [kernel for kernel in kernels(lowered) if kernel.kind is KernelKind.REDUCTION]
    assert [kernel.read_bytes for kernel in reductions] == [2048]
    assert counts(loop).count(KernelKind.REDUCTION) == 1
    inside = {name for kernel in loop.body.steps for name in kernel.ops if "stablehlo.sine" in kernel.ops}  # type: ignore[union-attr]
    assert inside
    assert "stablehlo.reduce" not in inside


def test_no_loop_is_left_of_a_question() -> None:
    assert QUESTION not in {loop.label for loop in all_loops(lower_function(solved, spec(512)).schedule)}


def test_constants_that_a_loop_begins_with_are_not_known_to_its_condition() -> None:
    """XLA asks before the first turn, too, though the answer could be known."""

    def run(x: jax.Array) -> jax.Array:
        def go_on(state: tuple[jax.Array, jax.Array]) -> jax.Array:
            return jnp.any(state[1] > 0)

        return jax.lax.while_loop(go_on, lambda s: (s[0] * 2, s[1] - s[0]), (x, jnp.ones(64)))[0]

    made = kernels(lower_function(run, spec(64)))
    assert sum(kernel.kind is KernelKind.REDUCTION for kernel in made) == 1


def test_a_condition_has_constants_of_its_own() -> None:
    """The limit is compared with on the way: the condition reads the carried value alone."""
    lowered = lower_function(
        lambda x: jax.lax.while_loop(lambda s: jnp.all(s < jnp.full(512, 8.0)), lambda s: s + 1, x), spec(512)
    )
    asked = [kernel for kernel in kernels(lowered) if kernel.kind is KernelKind.REDUCTION]
    assert [kernel.read_bytes for kernel in asked] == [2048]


def test_constants_made_of_what_a_loop_begins_with_are_no_ones_own() -> None:
    """A threshold that is half of the first state: it is read as it lies in memory."""

    def run(x: jax.Array) -> jax.Array:
        first = jnp.full(64, 2.0)
        half = first * 0.5
        return jax.lax.while_loop(lambda s: jnp.any(s[1] > half), lambda s: (s[0] * 2, s[1] - s[0]), (x, first))[0]

    made = kernels(lower_function(run, spec(64)))
    assert sum(kernel.kind is KernelKind.REDUCTION for kernel in made) == 1
