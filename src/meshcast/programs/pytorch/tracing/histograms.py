"""`histc` and `bincount`: every element adds one to a counter, as CUDA's kernels do with atomics; a scatter in StableHLO.

torchax's ways search through edges, or read the values to know how many counters there are.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from meshcast.base import UnsupportedError


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:  # torch's own names
    """How many elements lie in each of `bins` equal parts of `[min, max]`; others are not counted."""
    values = input.reshape(-1)
    low, high = (values.min(), values.max()) if min == max else (min, max)
    wide = values.astype(jnp.float32)
    place = jnp.floor((wide - low) * (bins / (high - low))).astype(jnp.int32)
    place = jnp.where(wide == high, bins - 1, place)
    inside = (wide >= low) & (wide <= high)
    return jnp.zeros((bins,), input.dtype).at[place].add(inside.astype(input.dtype), mode="drop")


def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number below `minlength` occurs, or the weights of those: a larger one would make a longer result."""
    if not minlength:
        raise UnsupportedError(
            "the length of bincount's result depends on the values of its input",
            fix="give minlength, as many as there are",
        )
    added = jnp.ones(input.shape, jnp.int32) if weights is None else weights
    return jnp.zeros((minlength,), added.dtype).at[input].add(added, mode="drop")
