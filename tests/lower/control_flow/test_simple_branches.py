"""Branches whose sides cost little are selects, as XLA's conditional_simplifier has it; others stay branches."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import BranchStep, Kernel, LoweredProgram
from meshcast.simulate import peak_memory
from tests.lower.programs import lower_function, spec

Side = Callable[[jax.Array], jax.Array]
SIZE = 4 << 20  # bytes


def chosen(true: Side, false: Side, backend: str = "xla-gpu") -> LoweredProgram:
    def function(x: jax.Array, flag: jax.Array) -> jax.Array:
        return lax.cond(flag, true, false, jnp.sin(x)) + 1.0

    return lower_function(function, spec(1024, 1024), spec(dtype="bool"), backend=backend)


def branches(lowered: LoweredProgram) -> int:
    return sum(isinstance(step, BranchStep) for step in lowered.schedule.steps)


def test_arithmetic_on_both_sides_is_one_kernel_that_selects() -> None:
    lowered = chosen(jnp.tanh, jnp.exp)
    (kernel,) = lowered.schedule.steps
    assert isinstance(kernel, Kernel)
    assert "stablehlo.select" in kernel.ops
    assert kernel.transcendentals == 3 * 1024 * 1024
    use = peak_memory(lowered)
    assert (use.arguments, use.outputs, use.temporaries) == (SIZE + 1, SIZE, 0)


def vector(x: jax.Array) -> jax.Array:
    return x * (x @ x[0])[:, None]


@pytest.mark.parametrize(
    ("true", "false", "left"),
    [
        (jnp.tanh, lambda x: x - x.sum(axis=1, keepdims=True), 0),
        (jnp.tanh, vector, 0),  # a product with a vector is a reduction by then
        (jnp.tanh, lambda x: x @ x, 1),
        (jnp.tanh, lambda x: jnp.sort(x, axis=1), 1),
        (jnp.tanh, lambda x: x.T, 1),
        (jnp.tanh, lambda x: x, 1),  # handing on is cheaper than a select
    ],
)
def test_what_costs_much_or_nothing_stays_a_branch(true: Side, false: Side, left: int) -> None:
    assert branches(chosen(true, false)) == branches(chosen(false, true)) == left


def test_numbers_choose_between_branches_that_stay() -> None:
    def function(x: jax.Array, which: jax.Array) -> jax.Array:
        return lax.switch(which, [jnp.tanh, jnp.exp, jnp.sin], x)

    assert branches(lower_function(function, spec(64, 64), spec(dtype="int32"))) == 1


def test_equal_results_of_both_sides_are_that_value() -> None:
    """What both sides hand on needs no select, and what stands behind them reads it."""

    def function(x: jax.Array, flag: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.sin(x)
        first, second = lax.cond(flag, lambda: (y, y * 2), lambda: (y, y + 1))
        return first * 3, second

    lowered = lower_function(function, spec(64, 64), spec(dtype="bool"))
    assert not branches(lowered)
    assert sum(kernel.ops.count("stablehlo.select") for kernel, _ in lowered.schedule.walk()) == 1


def test_other_compilers_keep_the_branch() -> None:
    assert branches(chosen(jnp.tanh, jnp.exp, backend="xla-tpu")) == 1
