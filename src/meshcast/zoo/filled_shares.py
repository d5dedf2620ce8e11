"""Shares of arrays that a number of devices does not divide: filled up at the end of a dimension, so that all are equal.

What keeps an optimizer's state in shares does so in a flat buffer of whole shares (Megatron's distributed optimizer, DeepSpeed's
ZeRO), whatever the number of replicas. Here the fill is at the end of one dimension. Nothing moves for it: a share of the whole
is the same device's share of what is filled up, so both steps are one on a device, which the ops around them take in.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def filled(extent: int, shares: int) -> int:
    """The nearest extent from so many on that so many shares divide."""
    return -(-extent // shares) * shares


def with_fill(value: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The array with zeros behind it up to a shape."""
    if value.shape == shape:
        return value
    return jnp.pad(value, [(0, wanted - size) for size, wanted in zip(value.shape, shape, strict=True)])


def as_share(value: jax.Array, share: jax.ShapeDtypeStruct) -> jax.Array:
    """A whole array, stored as the share says: each device takes its own part."""
    part: jax.Array = jax.lax.with_sharding_constraint(value, share.sharding)
    if part.shape == share.shape:
        return part
    whole: jax.Array = jax.lax.with_sharding_constraint(with_fill(part, share.shape), share.sharding)
    return whole


def without_fill(value: jax.Array, shape: tuple[int, ...], share: jax.ShapeDtypeStruct) -> jax.Array:
    """A filled array in its own shape, still in shares."""
    if value.shape == shape:
        return value
    own: jax.Array = jax.lax.with_sharding_constraint(value[tuple(slice(size) for size in shape)], share.sharding)
    return own
