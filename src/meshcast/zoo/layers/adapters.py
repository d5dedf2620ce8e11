"""Adapters of low rank beside weights that stay as they are (LoRA; Hu 2021, `arXiv:2106.09685`):

    y = x W + alpha / r (x A) B,   A: d x r, B: r x e

Of such a model the adapters alone have gradients and an optimizer's state. Here they stand beside attention's projections, as
MLPerf's Llama 2 70B has them (rank 16 on `linear_qkv` and `linear_proj`, alpha 32), queries, keys and values with one A.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshcast.zoo.shapes.decoder import DecoderConfig
from meshcast.zoo.sharding import ShardedWeight

_PREFIX = "adapter_"
_ALPHA = 32.0


def adapter_weights(config: DecoderConfig) -> dict[str, ShardedWeight]:
    """The adapters of one layer's attention; nothing where there are none."""
    rank = config.lora
    if not rank:
        return {}
    width, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        f"{_PREFIX}in": ShardedWeight((config.dim, rank), ("fsdp", None)),
        **{
            f"{_PREFIX}{name}": ShardedWeight((rank, size), (None, "tensor"))
            for name, size in (("q", width), ("k", narrow), ("v", narrow))
        },
        f"{_PREFIX}out_in": ShardedWeight((width, rank), ("tensor", None)),
        f"{_PREFIX}out": ShardedWeight((rank, config.dim), (None, "fsdp")),
    }


def with_heads(made: list[jax.Array], x: jax.Array, w: dict[str, jax.Array], config: DecoderConfig) -> list[jax.Array]:
    """Queries, keys and values (B, S, e) of activations x (B, S, d), with what their adapters add."""
    if not config.lora:
        return made
    low = _scaled(jnp.einsum("bsd,dr->bsr", x, w[f"{_PREFIX}in"]), config)
    return [
        y + jnp.einsum("bsr,re->bse", low, w[f"{_PREFIX}{name}"]) for y, name in zip(made, ("q", "k", "v"), strict=True)
    ]


def with_result(y: jax.Array, x: jax.Array, w: dict[str, jax.Array], config: DecoderConfig) -> jax.Array:
    """What attention's last projection makes of x (B, S, e), with what its adapter adds."""
    if not config.lora:
        return y
    low = _scaled(jnp.einsum("bse,er->bsr", x, w[f"{_PREFIX}out_in"]), config)
    return y + jnp.einsum("bsr,rd->bsd", low, w[f"{_PREFIX}out"])


def parted(tree: Any) -> tuple[Any, Any]:
    """A tree of a model's values as two of the same nesting: its adapters, which are trained, and the rest, which is not."""
    if isinstance(tree, list):
        pairs = [parted(each) for each in tree]
        return [trained for trained, _ in pairs], [frozen for _, frozen in pairs]
    trained: dict[str, Any] = {}
    frozen: dict[str, Any] = {}
    for name, value in tree.items():
        if name.startswith(_PREFIX):
            trained[name] = value
        elif isinstance(value, (dict, list)):
            trained[name], frozen[name] = parted(value)
        else:
            frozen[name] = value
    return trained, frozen


def joined(trained: Any, frozen: Any) -> Any:
    """What `parted` took apart."""
    if isinstance(frozen, list):
        return [joined(one, other) for one, other in zip(trained, frozen, strict=True)]
    nested = {name: joined(trained[name], value) for name, value in frozen.items() if isinstance(value, (dict, list))}
    return {**trained, **frozen, **nested}


def _scaled(low: jax.Array, config: DecoderConfig) -> jax.Array:
    return low * jnp.asarray(_ALPHA / config.lora, low.dtype)
