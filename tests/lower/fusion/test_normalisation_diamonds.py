"""Which reductions XLA computes in one pass with what is done over their rows, and which take kernels of their own."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import KernelKind
from tests.lower.programs import kernels, lower_function, spec

ROWS = spec(4096, 768)


def softmax(x: jax.Array) -> jax.Array:
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def centred_norm(x: jax.Array) -> jax.Array:
    d = x - jnp.mean(x, -1, keepdims=True)
    return d * lax.rsqrt(jnp.mean(d * d, -1, keepdims=True) + 1e-5)


def fast_variance(x: jax.Array) -> jax.Array:
    """The mean is read twice: by the variance and by the difference."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(x * x, -1, keepdims=True) - mean * mean
    return (x - mean) * lax.rsqrt(variance + 1e-5)


def over_columns(x: jax.Array) -> jax.Array:
    return x - jnp.max(x, 0)


@pytest.mark.parametrize(
    ("norm", "rows"), [(softmax, True), (centred_norm, True), (fast_variance, False), (over_columns, False)]
)
def test_only_closed_diamonds_are_row_fusions(norm: Callable[[jax.Array], jax.Array], rows: bool) -> None:
    made = kernels(lower_function(norm, ROWS))
    by_rows = [k for k in made if k.kind is KernelKind.REDUCTION and k.elements == 4096 * 768]
    assert bool(by_rows) == rows
    assert (len(made) == 1) == rows


def test_a_diamond_with_several_readers_ends_there() -> None:
    """The differences are returned as well: one kernel writes them, and two more sum and scale them."""

    def norm(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        d = x - jnp.mean(x, -1, keepdims=True)
        return d, d * lax.rsqrt(jnp.mean(d * d, -1, keepdims=True) + 1e-5)

    first, *others = kernels(lower_function(norm, ROWS))
    assert first.kind is KernelKind.REDUCTION
    assert first.elements == 4096 * 768
    assert others


def test_a_reduction_takes_functions_of_its_result_alone() -> None:
    """XLA's reductions go on with unary ops; with a second operand they are a kernel of their own."""
    assert len(kernels(lower_function(lambda x: -jnp.sum(x, -1), ROWS))) == 1
    assert len(kernels(lower_function(lambda x, y: jnp.sum(x, -1) + y, ROWS, spec(4096)))) == 2
