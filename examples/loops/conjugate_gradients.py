"""Conjugate gradients until the residual is small: a loop whose turns depend on the data, and are 200 at most.

meshcast predict examples/loops/conjugate_gradients.py:solve --on h200 --trip-count 10..40
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

N, MOST, TOLERANCE = 4096, 200, 1e-6


def conjugate_gradients(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """The solution of `matrix @ x = right` for a symmetric positive definite matrix."""

    def goes_on(state: tuple[Any, ...]) -> jax.Array:
        turn, _, residual, _ = state
        return (turn < MOST) & (jnp.vdot(residual, residual) > TOLERANCE)

    def turn(state: tuple[Any, ...]) -> tuple[Any, ...]:
        count, x, residual, direction = state
        moved = matrix @ direction
        before = jnp.vdot(residual, residual)
        step = before / jnp.vdot(direction, moved)
        residual = residual - step * moved
        grown = jnp.vdot(residual, residual) / before
        return count + 1, x + step * direction, residual, residual + grown * direction

    start = (jnp.int32(0), jnp.zeros_like(right), right, right)
    return jax.lax.while_loop(goes_on, turn, start)[1]


def solve() -> tuple[Any, ...]:
    """The solver as a target: the function and what it is called with."""
    matrix, right = jax.ShapeDtypeStruct((N, N), jnp.float32), jax.ShapeDtypeStruct((N,), jnp.float32)
    return conjugate_gradients, (matrix, right)
