"""Arguments made on the device: mixed bits for numbers, indices spread as a probe says; nothing crosses the bus."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.evidence.calibrate.probe import Indices, ProbeBody

SPREAD = 0.03  # numbers are uniform in +- this; of all bits of the mantissa, as power depends on bits that flip
_GOLDEN = 0x9E3779B1


def filler(body: ProbeBody) -> Callable[[Any], Any]:
    """A function of a seed that returns a probe's arguments; the seed keeps XLA from computing them at compile time."""
    leaves, tree = jax.tree.flatten(body.args)

    def fill(seed: Any) -> Any:
        return jax.tree.unflatten(tree, [_leaf(leaf, i, seed, body.indices) for i, leaf in enumerate(leaves)])

    return fill


def _leaf(spec: Any, position: int, seed: Any, indices: Mapping[int, Indices]) -> Any:
    bits = _mixed(math.prod(spec.shape), seed + jnp.uint32(position + 1)).reshape(spec.shape)
    if position in indices:
        return _drawn(bits, indices[position]).astype(spec.dtype)
    if spec.dtype == jnp.bool_:
        return (bits & 1).astype(jnp.bool_)
    if jnp.issubdtype(spec.dtype, jnp.integer):
        return (bits >> 16).astype(spec.dtype)
    narrow = jnp.dtype(spec.dtype).itemsize == 1
    uniform = bits.astype(jnp.int32).astype(jnp.float32) * (2.0**-31)
    return (uniform * (1.0 if narrow else SPREAD)).astype(spec.dtype)


def _mixed(size: int, seed: Any) -> Any:
    """Bits by position, mixed with xors and multiplications so that neighbours share nothing."""
    bits = jax.lax.iota(jnp.uint32, size) * jnp.uint32(_GOLDEN) + seed * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def _drawn(bits: jax.Array, indices: Indices) -> Any:
    """Indices in range: uniform, or by Zipf's law with the hot rows scattered over the table.

    The inverse of the law's continuous distribution: rank = (u (n^(1-s) - 1) + 1)^(1 / (1-s)).
    """
    below = indices.below
    if not indices.skew:
        return (bits % jnp.uint32(below)).astype(jnp.int32)
    power = 1.0 - indices.skew
    uniform = (bits >> 8).astype(jnp.float32) * (2.0**-24)
    rank = (uniform * (float(below) ** power - 1.0) + 1.0) ** (1.0 / power) - 1.0
    return ((jnp.clip(rank, 0, below - 1).astype(jnp.uint32) * jnp.uint32(_GOLDEN)) % jnp.uint32(below)).astype(
        jnp.int32
    )
