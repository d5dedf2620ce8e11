"""The transformer block with layer norms and biases (GPT, ViT, BERT): its weights, its halves, and a stack of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax

from meshcast.base import UsageError
from meshcast.zoo.layers.pieces import (
    ACTIVATIONS,
    BATCH,
    Remat,
    attention,
    checkpointed,
    layer_norm,
    one_layer,
)
from meshcast.zoo.layers.products import product
from meshcast.zoo.layers.saving import ATTENTION, HEADS, kept
from meshcast.zoo.sharding import MeshLayout, ShardedWeight
from meshcast.zoo.words import MARKED, UNMARKED

Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def block_weights(dim: int, ffn: int) -> dict[str, ShardedWeight]:
    """The weights of a block, stored over "fsdp" and split over "tensor" as Megatron does.

    The fused projection is (dim, 3, dim), so that a slice of q, k or v never crosses a shard.
    """
    return {
        "norm1_scale": ShardedWeight((dim,)),
        "norm1_bias": ShardedWeight((dim,)),
        "wqkv": ShardedWeight((dim, 3, dim), ("fsdp", None, "tensor")),
        "bqkv": ShardedWeight((3, dim), (None, "tensor")),
        "wo": ShardedWeight((dim, dim), ("tensor", "fsdp")),
        "bo": ShardedWeight((dim,)),
        "norm2_scale": ShardedWeight((dim,)),
        "norm2_bias": ShardedWeight((dim,)),
        "w1": ShardedWeight((dim, ffn), ("fsdp", "tensor")),
        "b1": ShardedWeight((ffn,), ("tensor",)),
        "w2": ShardedWeight((ffn, dim), ("tensor", "fsdp")),
        "b2": ShardedWeight((dim,)),
    }


def self_attention(
    h: jax.Array, w: dict[str, jax.Array], *, layout: MeshLayout, heads: int, attend: Attend
) -> jax.Array:
    """The attention half on normalised activations (B, S, dim), without its residual sum."""
    batch, length, dim = h.shape
    qkv = (
        product("bsd,dce->bsce", h, w["wqkv"], layout, over=(BATCH, "context", None), held=layout.sequence_parallel)
        + w["bqkv"]
    )
    qkv = layout.constrain(kept(qkv, HEADS), BATCH, "context", None, "tensor")
    q, k, v = (qkv[:, :, i].reshape(batch, length, heads, dim // heads) for i in range(3))
    y = layout.constrain(attend(q, k, v).reshape(batch, length, dim), BATCH, "context", "tensor")
    over = (BATCH, "context", "tensor")
    return product("bse,ed->bsd", y, w["wo"], layout, over=over, held=layout.attends_at_once, number=2)


def feed_forward(h: jax.Array, w: dict[str, jax.Array], *, layout: MeshLayout, activation: str) -> jax.Array:
    """The feed-forward half on normalised activations, without its residual sum."""
    h = kept(
        product(
            "bsd,df->bsf", h, w["w1"], layout, over=(BATCH, "context", None), held=layout.sequence_parallel, number=3
        )
        + w["b1"]
    )
    h = ACTIVATIONS[activation](h)
    return product("bsf,fd->bsd", h, w["w2"], layout, over=(BATCH, "context", "tensor"), number=4)


def block(
    x: jax.Array,
    w: dict[str, jax.Array],
    *,
    layout: MeshLayout,
    heads: int,
    attend: Attend = attention,
    activation: str = "exact_gelu",
    epsilon: float = 1e-5,
    post_norm: bool = False,
) -> jax.Array:
    """A transformer block (B, S, dim): one all-reduce over "tensor" after each of its two halves.

    With sequence parallelism that is a reduce-scatter, and an all-gather before each half.

    Pre-norm: x + f(norm(x)), as GPT-2 has it. Post-norm: norm(x + f(x)), as BERT has it.
    """

    def norm(x: jax.Array, name: str) -> jax.Array:
        return layer_norm(x, w[f"{name}_scale"], w[f"{name}_bias"], epsilon=epsilon)

    def before(x: jax.Array, name: str) -> jax.Array:
        # Pinned, or the gradient would arrive in FSDP's sharding of the weights and travel to the batch's.
        return layout.whole(x if post_norm else norm(x, name))

    def after(x: jax.Array, name: str) -> jax.Array:
        x = layout.constrain(x, *layout.residual)
        return layout.constrain(norm(x, name), *layout.residual) if post_norm else x

    h = self_attention(before(x, "norm1"), w, layout=layout, heads=heads, attend=attend)
    x = kept(after(x + h + w["bo"], "norm1"), ATTENTION)
    h = feed_forward(before(x, "norm2"), w, layout=layout, activation=activation)
    return after(x + h + w["b2"], "norm2")


def through_layers(
    body: Callable[[jax.Array, Any], jax.Array],
    x: jax.Array,
    values: Any,
    weights: Any,
    *,
    remat: Remat,
    layout: MeshLayout,
    marks: bool = False,
) -> jax.Array:
    """Activations after every layer: a scan where the layers are stacked, unrolled where they are a list.

    Args:
        body: One layer, on its weights as they are used.
        x: What goes in.
        values: The layers' weights, as stored.
        weights: The same tree of `ShardedWeight`.
        remat: What the backward pass keeps of a layer.
        layout: The mesh.
        marks: Whether the body marks all that kernels with a backward pass of their own read.

    Raises:
        UsageError: What is marked is to be kept, and not all of it is.
    """
    if remat in MARKED and not marks:
        raise UsageError(
            f"remat={remat} keeps what layers mark for it, and this model's do not mark all of it",
            where="--set",
            fix="use remat=" + ", ".join(UNMARKED),
        )
    unrolled = isinstance(values, list)
    leaves, tree = jax.tree.flatten(weights[0] if unrolled else one_layer(weights))
    step = _layer_step(body, tuple(leaves), tree, remat, layout)
    if not unrolled:
        return jax.lax.scan(step, x, values)[0]
    for w in values:
        x, _ = step(x, w)
    return x


@lru_cache(maxsize=64)
def _layer_step(
    body: Callable[[jax.Array, Any], jax.Array],
    leaves: tuple[ShardedWeight, ...],
    tree: Any,
    remat: Remat,
    layout: MeshLayout,
) -> Callable[[jax.Array, Any], tuple[jax.Array, None]]:
    """One layer as a scan takes it; kept, because what `jax` has traced and differentiated once it knows by identity."""

    def step(x: jax.Array, w: Any) -> tuple[jax.Array, None]:
        return body(x, layout.gather(w, tree.unflatten(leaves))), None

    return checkpointed(step, remat, layout)
