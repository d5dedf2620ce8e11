"""Programs by name, and what their arguments are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

BF16, F32 = jnp.bfloat16, jnp.float32
Call = tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]  # a function, its arguments, the donated ones
PROGRAMS: dict[str, Callable[[], Call]] = {}


def program(name: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """Registers what makes a program."""

    def kept(make: Callable[[], Call]) -> Callable[[], Call]:
        PROGRAMS[name] = make
        return make

    return kept


def apart(name: str) -> bool:
    """Whether a program is of the half that is not looked at, by the hash of its name."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def spec(*sizes: int, dtype: Any = F32) -> Any:
    """An array of these sizes."""
    return jax.ShapeDtypeStruct(sizes, dtype)


def ints(*sizes: int) -> Any:
    """Indices, tokens or labels."""
    return spec(*sizes, dtype=jnp.int32)


KEY = spec(2, dtype=jnp.uint32)


def cast(tree: Any, dtype: Any) -> Any:
    """Arrays in another type."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)
