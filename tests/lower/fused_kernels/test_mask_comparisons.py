"""Masks that are the same for all heads, and those of each sequence's length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from meshcast.lower import KernelKind
from tests.lower.programs import kernels, lower_function, spec


def _softmax(scores: jax.Array, mask: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)


def _rows_and_columns() -> jax.Array:
    at = jnp.arange(256)
    return at[:, None] >= at[None]


def _up_to(lengths: jax.Array) -> jax.Array:
    return (jnp.arange(256)[None] < lengths[:, None])[:, None, None]


def _causal(scores: jax.Array, lengths: jax.Array) -> jax.Array:
    return _softmax(scores, _rows_and_columns()) + lengths[0]


def _padded(scores: jax.Array, lengths: jax.Array) -> jax.Array:
    return _softmax(scores, _up_to(lengths))


def _both(scores: jax.Array, lengths: jax.Array) -> jax.Array:
    return _softmax(scores, _up_to(lengths) & _rows_and_columns())


@pytest.mark.parametrize(("function", "told"), [(_causal, False), (_padded, True), (_both, False)])
def test_lengths_are_compared_with_places(function: object, told: bool) -> None:
    lowered = lower_function(function, spec(16, 8, 256, 256), spec(16, dtype="int32"))  # type: ignore[arg-type]
    found = [kernel for kernel in kernels(lowered) if kernel.kind is KernelKind.REDUCTION]
    assert found
    assert all(("lengths" in kernel.flags) is told for kernel in found)
