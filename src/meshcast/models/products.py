"""Products of activations with weights, in the compute dtype or in fp8.

fp8 after Micikevicius 2022 (`arXiv:2209.05433`): inputs in E4M3, gradients in E5M2, each tensor scaled such that its largest
value is the format's largest ("current scaling": the scale is that of the values themselves), sums in fp32:

    y = (q(x) q(w)) s_x s_w,   q(v) = round(v / s_v),   s_v = max |v| / largest

All three products of a layer, forward and both backward, are made so. Weights are kept in the compute dtype.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from meshcast.errors import UsageError
from meshcast.models.sharding import Layout

KINDS = ("plain", "fp8")
KEPT = "product"  # the name of what `remat="alternate"` keeps
_LARGEST = {jnp.float8_e4m3fn: 448.0, jnp.float8_e5m2: 57344.0}


def product(equation: str, x: jax.Array, w: jax.Array, layout: Layout, *, second: bool = False) -> jax.Array:
    """`jnp.einsum(equation, x, w)`, as the layout says; every index is in two of the equation's three terms.

    Args:
        equation: Of `einsum`.
        x: Activations.
        w: Weights.
        layout: Says in which type.
        second: Whether it is an even one of its layer's products, in order: `remat="alternate"` computes these again, and
            those in fp8 whichever they are. That is what torchtitan's selective checkpointing by ops does, which lists the
            plain product and no other (`parallelize_llama.py` of December 2024).
    """
    if layout.products not in KINDS:
        raise UsageError(
            f"products in {layout.products!r} are not known", where="--set", fix="one of " + ", ".join(KINDS)
        )
    if layout.products == "fp8":
        return _scaled(equation, x, w)
    y = jnp.einsum(equation, x, w)
    return y if second else checkpoint_name(y, KEPT)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scaled(equation: str, x: jax.Array, w: jax.Array) -> jax.Array:
    return _forward(equation, x, w)[0]


def _quantised(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Values in a narrow format, and their scale."""
    wide = x.astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(wide)), 1e-30) / _LARGEST[dtype]
    return (wide / scale).astype(dtype), scale


def _narrow(equation: str, x: tuple[jax.Array, jax.Array], w: tuple[jax.Array, jax.Array], dtype: Any) -> jax.Array:
    """The product in the wider type, as the matrix engine rounds its sums; scales are applied behind it."""
    y = jnp.einsum(equation, x[0], w[0], preferred_element_type=dtype)
    return y * (x[1] * w[1]).astype(dtype)


def _forward(equation: str, x: jax.Array, w: jax.Array) -> tuple[jax.Array, Any]:
    narrow_x, narrow_w = (_quantised(each, jnp.float8_e4m3fn) for each in (x, w))
    like = jnp.zeros((), x.dtype), jnp.zeros((), w.dtype)  # the types alone
    return _narrow(equation, narrow_x, narrow_w, x.dtype), (narrow_x, narrow_w, like)


def _backward(equation: str, kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w, (like_x, like_w) = kept
    inputs, result = equation.split("->")
    left, right = inputs.split(",")
    narrow = _quantised(gradient, jnp.float8_e5m2)
    dx = _narrow(f"{result},{right}->{left}", narrow, w, like_x.dtype)
    dw = _narrow(f"{left},{result}->{right}", x, narrow, like_w.dtype)
    return dx, dw


_scaled.defvjp(_forward, _backward)
