"""Arrays for the zoo's abstract arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def concrete(args: tuple[Any, ...], roles: list[str]) -> list[Any]:
    """Arrays for abstract arguments: scaled random weights, zero state, integers below the smallest vocabulary.

    NumPy makes them, as JAX would compile a program for every shape; data are JAX's, of which tests change some.
    """
    rng = np.random.default_rng(0)

    def weight(path: Any, leaf: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path[-1:])
        if "norm" in name or "scale" in name:
            return np.full(leaf.shape, 0.0 if "bias" in name else 1.0, leaf.dtype)
        scale = leaf.shape[-2] ** -0.5 if len(leaf.shape) > 1 else 0.0
        return rng.normal(0, scale, leaf.shape).astype(leaf.dtype)

    def datum(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 16, leaf.shape).astype(leaf.dtype))
        return jnp.asarray(rng.normal(size=leaf.shape).astype(leaf.dtype))

    def zeros(leaf: Any) -> np.ndarray:
        return np.zeros(leaf.shape, leaf.dtype)

    makers = {"opt_state": zeros, "cache": zeros, "batch": datum}
    return [
        jax.tree_util.tree_map_with_path(weight, arg) if role == "params" else jax.tree.map(makers[role], arg)
        for role, arg in zip(roles, args, strict=True)
    ]
