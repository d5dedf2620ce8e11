"""A model cut where a pipeline may cut it: what comes before the layers, some of the layers, what comes after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from meshcast.zoo.sharding import MeshLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """The pieces that parts of a pipeline are made of.

    Attributes:
        layout: The mesh.
        entry: Weights before the layers, by name.
        layers: Weights of the layers.
        exit: Weights after them; what both ends share is in both.
        embed: Activations of a batch: `(entry, batch) -> x`.
        through: Activations after the layers and what they add to the loss, if anything: `(layers, x) -> (x, loss)`.
        loss: `(exit, x, batch) -> loss`.
        width: The width of the activations (B, S, width).
        length: Positions of a sequence.
        adapters_only: Only adapters (`zoo/layers/adapters.py`) are trained.
    """

    layout: MeshLayout
    entry: dict[str, Any]
    layers: Any
    exit: dict[str, Any]
    embed: Callable[[Any, Any], jax.Array]
    through: Callable[[Any, jax.Array], tuple[jax.Array, jax.Array | None]]
    loss: Callable[[Any, jax.Array, Any], jax.Array]
    width: int
    length: int
    adapters_only: bool = False
