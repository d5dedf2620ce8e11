"""GPT-2 (Radford 2019) with data and Megatron-style tensor parallelism, as a scan over layers or unrolled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.errors import UsageError
from meshcast.models.layers import (
    BATCH,
    Remat,
    block,
    block_weights,
    cast,
    causal_mask,
    checkpointed,
    cross_entropy,
    embed,
    layer_norm,
)
from meshcast.models.program import Program, adamw_program, token_batch
from meshcast.models.sharding import Layout, Weight

AXES = ("data", "tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The sizes of a model; the feed-forward width is four times the model's."""

    layers: int
    dim: int
    heads: int
    vocab: int = 50257
    positions: int = 1024


TINY = Config(layers=2, dim=64, heads=4, vocab=257, positions=128)
SMALL = Config(layers=12, dim=768, heads=12)
MEDIUM = Config(layers=24, dim=1024, heads=16)
LARGE = Config(layers=36, dim=1280, heads=20)
XL = Config(layers=48, dim=1600, heads=25)


def weights(config: Config, layout: Layout, *, scan: bool) -> dict[str, Any]:
    """Every parameter's shape and storage; layers are stacked for a scan, separate where unrolled.

    Over "tensor" the vocabulary is padded to a multiple of 128 per shard, as Megatron pads it: 50257 is odd.
    """
    layout.require(config.heads, "tensor", "attention heads")
    shards = layout.size("tensor")
    vocab = config.vocab if shards == 1 else -(-config.vocab // (128 * shards)) * 128 * shards
    layer = block_weights(config.dim, 4 * config.dim)
    layers: Any = [layer] * config.layers
    if scan:
        layers = {name: weight.stacked(config.layers) for name, weight in layer.items()}
    return {
        "tokens": Weight((vocab, config.dim), ("tensor", None)),
        "positions": Weight((config.positions, config.dim)),
        "layers": layers,
        "norm_scale": Weight((config.dim,)),
        "norm_bias": Weight((config.dim,)),
    }


def train_step(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int | None = None,
    microbatches: int = 1,
    scan: bool = True,
    remat: Remat = "none",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> Program:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`; `seq` defaults to the longest."""
    layout = Layout.of(mesh, axes=AXES)
    length = config.positions if seq is None else seq
    if length > config.positions:
        raise UsageError(f"seq={length} is longer than the model's {config.positions} positions")

    def loss(params: Any, batch: Any) -> jax.Array:
        params = cast(params, compute_dtype)
        step = partial(block, layout=layout, heads=config.heads, mask=causal_mask(length), approximate_gelu=True)

        def body(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
            return step(x, w), None

        layer = checkpointed(body, remat, layout)
        x = layout.constrain(embed(params["tokens"], batch["tokens"], layout), BATCH, None, None)
        x = x + params["positions"][:length]
        if scan:
            x, _ = jax.lax.scan(layer, x, params["layers"])
        else:
            for w in params["layers"]:
                x, _ = layer(x, w)
        x = layer_norm(x, params["norm_scale"], params["norm_bias"])
        logits = jnp.einsum("bsd,vd->bsv", x, params["tokens"])
        return cross_entropy(layout.constrain(logits, BATCH, None, "tensor"), batch["targets"])

    params = layout.params(weights(config, layout, scan=scan), param_dtype)
    data = token_batch(layout, batch, length, microbatches=microbatches)
    return adamw_program(layout, loss, params, data, microbatches=microbatches)
