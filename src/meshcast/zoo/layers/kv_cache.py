"""The keys and values of earlier positions: arrays (layers, B, heads, T, width) that a step updates in place.

Heads come before positions, as in serving engines: a head's products find its keys together. With positions first XLA
transposes the whole cache in every step, and back.

A layer with a window keeps as many positions as it sees, written round and round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.sharding import Axes, MeshLayout

Cache = dict[str, jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one layer keeps under one name: its shape (B, ..., T, width), and the mesh axes of every dimension."""

    shape: tuple[int, ...]
    axes: tuple[Axes, ...]

    def struct(self, layers: int, layout: MeshLayout, dtype: DTypeLike) -> jax.ShapeDtypeStruct:
        """The abstract array of a stack of layers."""
        return layout.struct((layers, *self.shape), dtype, None, *self.axes)


def structs(entries: Mapping[str, Entry], layers: int, layout: MeshLayout, dtype: DTypeLike, *, scan: bool) -> Any:
    """The abstract cache of equal layers: stacked for a scan, else one of each layer's own, as serving engines keep it."""
    if scan:
        return {name: entry.struct(layers, layout, dtype) for name, entry in entries.items()}
    return [{name: entry.struct(1, layout, dtype) for name, entry in entries.items()} for _ in range(layers)]


def through_layers(
    body: Callable[[Any, Any], tuple[Any, None]], x: jax.Array, cache: Any, layers: Any
) -> tuple[jax.Array, Any]:
    """Activations after every layer, and what the layers keep now: a scan over stacks, unrolled where they are lists.

    Args:
        body: One layer of a scan, `((x, cache), (its number, its weights)) -> ((x, cache), None)`. A layer with a cache of
            its own is number 0 there.
        x: What goes in.
        cache: As `structs` has it.
        layers: The layers' weights, stacked or not as the cache is.
    """
    if not isinstance(layers, list):
        count = jax.tree.leaves(layers)[0].shape[0]
        (x, cache), _ = jax.lax.scan(body, (x, cache), (jnp.arange(count), layers))
        return x, cache
    # Traced and lowered once for all.
    step = jax.jit(lambda x, held, w: body((x, held), (0, w))[0])
    kept = []
    for held, w in zip(cache, layers, strict=True):
        x, updated = step(x, held, w)
        kept.append(updated)
    return x, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlace:
    """Where a pass stands: the positions it computes, in which layer of a stack, and how many the cache has already.

    Several positions behind others are a chunk of a prompt, and `past` of them are known when the program is made.
    """

    positions: jax.Array
    layer: jax.Array | int = 0
    past: int = 0


def append(cache: Cache, new: Cache, place: CachePlace) -> Cache:
    """The cache with the values (B, ..., S, width) of new positions in one layer; of a prompt too long for it, the last."""

    def put(held: jax.Array, values: jax.Array, start: jax.Array) -> jax.Array:
        where = (place.layer, *(0,) * (values.ndim - 2), start, 0)
        return jax.lax.dynamic_update_slice(held, values[None].astype(held.dtype), where)

    def written(held: jax.Array, values: jax.Array) -> jax.Array:
        # Position p lies at p % room.
        room, length = held.shape[-2], values.shape[-2]
        if length == 1:
            return put(held, values, place.positions[0] % room)
        if length > room:
            return put(held, jnp.roll(values[..., -room:, :], (place.past + length) % room, axis=-2), jnp.int32(0))
        start = place.past % room
        end = room - start  # what is past the end goes on at the beginning
        held = put(held, values[..., :end, :], jnp.int32(start))
        return put(held, values[..., end:, :], jnp.int32(0)) if length > end else held

    return {name: written(held, new[name]) for name, held in cache.items()}


def check_room(length: int, room: int, past: int) -> None:
    """Refuses a prompt, or a chunk behind `past` positions of it, that is longer than its cache.

    Raises:
        UsageError: It is.
    """
    if past + length <= room:
        return
    what = f"a chunk of seq={length} behind past={past}" if past else f"a prompt of seq={length}"
    raise UsageError(f"{what} does not fit context={room}", where="--set", fix=f"context={past + length}")


def heads_first(values: jax.Array) -> jax.Array:
    """Keys or values (B, S, heads, width) of new positions, as a cache keeps them."""
    return values.swapaxes(1, 2)


def of_layer(cache: Cache, place: CachePlace) -> Cache:
    """What one layer has kept, (B, ..., T, width)."""
    if isinstance(place.layer, int):  # the only layer of its arrays
        return {name: held.reshape(held.shape[1:]) for name, held in cache.items()}
    return {name: jax.lax.dynamic_index_in_dim(held, place.layer, keepdims=False) for name, held in cache.items()}


def before(cache: Cache, place: CachePlace) -> Cache:
    """What one layer has kept of the positions before a chunk, in their order, (B, ..., T, width); of a window the last."""

    def ordered(held: jax.Array) -> jax.Array:
        room = held.shape[-2]
        return held[..., : place.past, :] if place.past <= room else jnp.roll(held, -(place.past % room), axis=-2)

    return {name: ordered(held) for name, held in of_layer(cache, place).items()}


def visible(length: int, place: CachePlace) -> jax.Array:
    """Which slots of a cache hold anything; once it is written round, all do."""
    return jnp.arange(length) <= place.positions[0]
