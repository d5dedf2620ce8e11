"""Normalisations of decoders by kind: which weights they have, and what they compute."""

from __future__ import annotations

import jax

from meshcast.zoo.layers.pieces import layer_norm, rms_norm
from meshcast.zoo.sharding import ShardedWeight


def norm_weights(name: str, width: int, kind: str) -> dict[str, ShardedWeight]:
    """The weights of a normalisation of `shapes.decoder.NORMS`: a scale but for "bare", a bias for "layer"."""
    found = {} if kind == "bare" else {name: ShardedWeight((width,))}
    return found | ({f"{name}_bias": ShardedWeight((width,))} if kind == "layer" else {})


def normalised(x: jax.Array, w: dict[str, jax.Array], name: str, kind: str) -> jax.Array:
    """Activations normalised over their last axis, scaled and shifted by such weights as there are."""
    if kind == "rms":
        return rms_norm(x, w[name])
    return layer_norm(x, w.get(name), w.get(f"{name}_bias"))
