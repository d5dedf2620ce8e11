"""Arguments without values: shapes, initialisation that computes nothing, and the steps that most programs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


class Bounded(jax.ShapeDtypeStruct):
    """Integers in [0, below): indices, tokens or labels, which a run of the program must draw from there."""

    below: int = 0


def spec(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """An array of these sizes."""
    return jax.ShapeDtypeStruct(sizes, dtype)


def integers(below: int, *sizes: int, dtype: Any = jnp.int32) -> Bounded:
    """Integers of [0, below) of these sizes."""
    made = Bounded(sizes, dtype)
    object.__setattr__(made, "below", below)  # a shape refuses new values in the usual way
    return made


KEY = spec(2, dtype=jnp.uint32)


def abstract(tree: Any) -> Any:
    """The shapes of a tree of arrays; what is a shape already stays as it is."""

    def shape(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))

    return jax.tree.map(shape, tree)


def cast(tree: Any, dtype: Any) -> Any:
    """A tree of arrays or shapes with its floats in another type."""

    def converted(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf.astype(dtype)

    return jax.tree.map(converted, tree)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean negative log-likelihood of integer labels, in f32."""
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


def stepped(loss: Callable[..., Any], optimizer: Any) -> Callable[..., Any]:
    """A training step `(params, state, *data)`: gradients of `loss(params, *data)`, then the optimizer's update."""

    def step(params: Any, state: Any, *data: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *data)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step


def training(loss: Callable[..., Any], params: Any, data: tuple[Any, ...], optimizer: Any = None) -> tuple[Any, Any]:
    """A training step with Adam or another optimizer, and its arguments."""
    optimizer = optimizer or optax.adamw(1e-3)
    params = abstract(params)
    return stepped(loss, optimizer), (params, jax.eval_shape(optimizer.init, params), *data)


def mixed(loss: Callable[..., Any], dtype: Any = jnp.bfloat16) -> Callable[..., Any]:
    """A loss whose parameters, kept in f32, are read in a narrower type."""
    return lambda params, *data: loss(cast(params, dtype), *data)
