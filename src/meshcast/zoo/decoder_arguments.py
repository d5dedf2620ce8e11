"""What a decoder that answers is called with: weights, in fewer bits where asked for, and a cache.

Weights in fewer bits (`weight_dtype`) are the matrices of its layers: what GPTQ, AWQ and checkpoints in fp8 store so. Embedding,
head, norms and biases stay in `param_dtype`, and so do activations and the cache: each weight is widened where it is used.
Scales, 16 bits for 128 weights or more, are left out: 3 % of the bytes of weights of 4 bits, 1.6 % of those of 8.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.typing import DTypeLike

from meshcast.zoo.layers import grouped_query, kv_cache, latent_attention
from meshcast.zoo.shapes.decoder import DecoderConfig
from meshcast.zoo.sharding import MeshLayout, ShardedWeight


def stored_params(
    tree: dict[str, Any], config: DecoderConfig, layout: MeshLayout, dtype: DTypeLike, narrow: str = ""
) -> Any:
    """Abstract parameters: the layers' matrices in the `narrow` type if there is one, the rest in `dtype`.

    Args:
        tree: Every parameter, those of layers stacked on a leading axis.
        config: The decoder.
        layout: The mesh.
        dtype: Of what is not narrow.
        narrow: A type of few bits.
    """
    layers = {stack.name for stack in config.stacks()}

    def struct(weight: ShardedWeight, *, of_layer: bool) -> Any:
        is_matrix = of_layer and len(weight.shape) > 2
        return layout.param(weight, narrow if narrow and is_matrix else dtype)

    return {
        name: jax.tree.map(lambda weight, inside=name in layers: struct(weight, of_layer=inside), each)
        for name, each in tree.items()
    }


def widened(values: Any, dtype: DTypeLike) -> Any:
    """A layer's weights with those of few bits in the type that they are multiplied in."""
    return jax.tree.map(lambda value: value.astype(dtype) if value.dtype.itemsize == 1 else value, values)


def cache_structs(
    config: DecoderConfig, layout: MeshLayout, batch: int, context: int, dtype: DTypeLike
) -> dict[str, Any]:
    """The abstract cache of every stack; a local layer keeps no more than its window."""
    found: dict[str, Any] = {}
    for stack in config.stacks():
        found[stack.name] = []
        for window in stack.windows:
            length = min(window or context, context)
            entries: dict[str, kv_cache.Entry]
            if config.latent_rank:
                entries = latent_attention.cache_shapes(config, batch, length)
            else:
                entries = grouped_query.cache_shapes(config, layout, batch, length)
            found[stack.name].append({name: e.struct(stack.count, layout, dtype) for name, e in entries.items()})
    return found
