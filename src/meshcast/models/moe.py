"""Mixtral (Jiang 2024): Llama's attention, a feed-forward layer of routed experts with a fixed capacity.

Dispatch and combine are the einsums of GShard (Lepikhin 2020). The batch is split over "data", "fsdp" and "expert",
the experts over "expert": moving tokens to them and back is the all-to-all that two constraints imply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.errors import UsageError
from meshcast.models.grouped_query import attention_weights, self_attention
from meshcast.models.layers import BATCH, Remat, cast, causal_mask, checkpointed, cross_entropy, embed, rms_norm
from meshcast.models.llama import layer_weights, project_out
from meshcast.models.program import Program, adamw_program, token_batch
from meshcast.models.sharding import Layout, Weight

AXES = ("data", "fsdp", "expert", "tensor")
HOME = ("data", "fsdp")
"""The axes that still split the tokens once they are at their experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The sizes of a model; tokens compete for experts within groups of `group` neighbours."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn: int
    experts: int = 8
    active: int = 2
    vocab: int = 32000
    head_dim: int = 128
    rope_theta: float = 1e6
    capacity_factor: float = 1.25
    balance: float = 0.02
    group: int = 1024


TINY = Config(layers=2, dim=64, heads=4, kv_heads=2, ffn=128, vocab=512, head_dim=16, group=64)
MIXTRAL_8X7B = Config(layers=32, dim=4096, heads=32, kv_heads=8, ffn=14336)
MIXTRAL_8X22B = Config(layers=56, dim=6144, heads=48, kv_heads=8, ffn=16384)


def weights(config: Config, layout: Layout) -> dict[str, Any]:
    """Every parameter's shape and storage; per-layer weights are stacked on a leading axis."""
    layer = attention_weights(config, layout) | {
        "ffn_norm": Weight((config.dim,)),
        "router": Weight((config.dim, config.experts)),
        "gate": Weight((config.experts, config.dim, config.ffn), ("expert", "fsdp", "tensor")),
        "up": Weight((config.experts, config.dim, config.ffn), ("expert", "fsdp", "tensor")),
        "down": Weight((config.experts, config.ffn, config.dim), ("expert", "tensor", "fsdp")),
    }
    return {
        "embedding": Weight((config.vocab, config.dim), ("tensor", "fsdp")),
        "layers": {name: weight.stacked(config.layers) for name, weight in layer.items()},
        "norm": Weight((config.dim,)),
        "head": Weight((config.dim, config.vocab), ("fsdp", "tensor")),
    }


def route(logits: jax.Array, *, active: int, capacity: int) -> tuple[jax.Array, jax.Array]:
    """Combine weights (G, S, E, C) and the balance loss of router logits (G, S, E).

    A token's slot in an expert is its rank among the group's tokens that chose it, first choices before second ones;
    past the capacity it is dropped. The loss is Switch's: E * sum_e (share of tokens) * (mean probability).
    """
    groups, length, experts = logits.shape
    probabilities = jax.nn.softmax(logits, axis=-1)
    gates, chosen = jax.lax.top_k(probabilities, active)
    gates = gates / jnp.sum(gates, axis=-1, keepdims=True)
    choice = jax.nn.one_hot(chosen, experts, dtype=jnp.float32)
    ordered = choice.swapaxes(1, 2).reshape(groups, active * length, experts)
    rank = (jnp.cumsum(ordered, axis=1) - ordered).reshape(groups, active, length, experts).swapaxes(1, 2)
    slot = jax.nn.one_hot(jnp.sum(rank * choice, axis=-1).astype(jnp.int32), capacity, dtype=jnp.float32)
    combine = jnp.einsum("gske,gskc->gsec", choice * gates[..., None], slot)
    share = jnp.mean(choice, axis=(0, 1, 2))
    return combine, experts * jnp.sum(share * jnp.mean(probabilities, axis=(0, 1)))


def experts(x: jax.Array, w: dict[str, jax.Array], *, config: Config, layout: Layout) -> tuple[jax.Array, jax.Array]:
    """The routed feed-forward half of a layer (B, S, dim), without its residual sum, and its balance loss."""
    size = min(config.group, x.shape[1])
    capacity = math.ceil(config.active * size * config.capacity_factor / config.experts)
    h = layout.constrain(rms_norm(x, w["ffn_norm"]), BATCH, None, None).reshape(-1, size, config.dim)
    h = layout.constrain(h, BATCH, None, None)
    combine, balance = route((h @ w["router"]).astype(jnp.float32), active=config.active, capacity=capacity)
    combine = layout.constrain(combine.astype(h.dtype), BATCH, None, None, None)
    dispatch = (combine > 0).astype(h.dtype)

    def exchange(y: jax.Array, *, out: bool) -> jax.Array:
        home, away = (None, BATCH, None, None), ("expert", HOME, None, None)
        first, last = (home, away) if out else (away, home)
        return layout.constrain(layout.constrain(y, *first), *last)

    y = exchange(jnp.einsum("gsec,gsd->egcd", dispatch, h), out=True)
    y = jax.nn.silu(jnp.einsum("egcd,edf->egcf", y, w["gate"])) * jnp.einsum("egcd,edf->egcf", y, w["up"])
    y = layout.constrain(y, "expert", HOME, None, "tensor")
    y = exchange(jnp.einsum("egcf,efd->egcd", y, w["down"]), out=False)
    return jnp.einsum("gsec,egcd->gsd", combine, y).reshape(x.shape), balance


def train_step(
    config: Config,
    *,
    mesh: Mapping[str, int] | None = None,
    batch: int = 8,
    seq: int = 2048,
    microbatches: int = 1,
    remat: Remat = "full",
    param_dtype: DTypeLike = "float32",
    compute_dtype: DTypeLike = "bfloat16",
) -> Program:
    """One AdamW step: `(params, opt_state, batch) -> (params, opt_state, loss)`."""
    layout = Layout.of(mesh, axes=AXES)
    layout.require(config.experts, "expert", "experts")
    if seq % min(config.group, seq):
        raise UsageError(f"seq={seq} is no multiple of the routing group of {config.group} tokens")
    tree = weights(config, layout)

    def loss(params: Any, batch: Any) -> jax.Array:
        params = cast(params, compute_dtype)
        mask = causal_mask(seq)
        x = embed(layout.gather(params["embedding"], tree["embedding"]), batch["tokens"], layout)
        x = layout.constrain(x, BATCH, None, None)

        def body(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
            w = layout.gather(w, layer_weights(tree))
            x = x + layout.constrain(self_attention(x, w, mask, config=config, layout=layout), BATCH, None, None)
            y, balance = experts(x, w, config=config, layout=layout)
            return x + layout.constrain(y, BATCH, None, None), balance

        x, balance = jax.lax.scan(checkpointed(body, remat, layout), x, params["layers"])
        value = cross_entropy(project_out(x, params, tree, layout), batch["targets"])
        return value + config.balance * jnp.mean(balance)

    params = layout.params(tree, param_dtype)
    data = token_batch(layout, batch, seq, microbatches=microbatches)
    return adamw_program(layout, loss, params, data, microbatches=microbatches)
