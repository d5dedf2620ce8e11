"""Transformer pieces shared by the models: norms, rotary positions, attention, blocks, the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from meshcast.errors import UsageError
from meshcast.models.sharding import Axes, Layout, Weight

BATCH: Axes = ("data", "fsdp", "expert")
"""The axes that split the batch: the minor one last, so that an all-to-all can move it to the experts."""

Remat = Literal["none", "dots", "full"]


def cast(params: Any, dtype: Any) -> Any:
    """Parameters in the compute dtype, still sharded as stored: gathers and gradient reductions move this dtype."""
    return jax.tree.map(lambda p: p.astype(dtype), params)


def rms_norm(x: jax.Array, scale: jax.Array, *, epsilon: float = 1e-5) -> jax.Array:
    """The root-mean-square normalisation over the last axis, computed in fp32."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    return wide.astype(x.dtype) * scale


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array, *, epsilon: float = 1e-5) -> jax.Array:
    """The normalisation to zero mean and unit variance over the last axis, computed in fp32."""
    wide = x.astype(jnp.float32)
    wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    return wide.astype(x.dtype) * scale + bias


def rotary(x: jax.Array, positions: jax.Array, *, theta: float) -> jax.Array:
    """Heads (..., sequence, heads, width) rotated by position (Su 2021), halves paired as in Llama's checkpoints."""
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions[..., None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    left, right = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Attention of q (B, S, H, D) over k, v (B, T, K, D): H/K query heads share a key head, softmax in fp32."""
    batch, length, heads, width = q.shape
    q = q.reshape(batch, length, k.shape[2], heads // k.shape[2], width)
    scores = jnp.einsum("bskgd,btkd->bkgst", q, k).astype(jnp.float32) * width**-0.5
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.float32(-1e30))
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgst,btkd->bskgd", weights, v).reshape(batch, length, heads, width)


def causal_mask(length: int) -> jax.Array:
    """Whether position t (last axis) is visible from position s."""
    return jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]


def embed(table: jax.Array, tokens: jax.Array, layout: Layout) -> jax.Array:
    """Rows of a table split by vocabulary over "tensor": a masked lookup and an all-reduce, as Megatron has it.

    The constraint is for its transpose: the gradient's rows are scattered where the tokens are and reduced after;
    without it FSDP's sharding of the gradient reaches the scatter, and the tokens' gradients travel instead.
    """
    return jnp.take(layout.constrain(table, "tensor", None), tokens, axis=0, mode="clip")


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean negative log-likelihood in fp32.

    The target's logit is picked by comparison, not by a gather: over a vocabulary-sharded axis it stays local up to a
    reduction of one number per token.
    """
    logits = logits.astype(jnp.float32)
    peak = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    normaliser = jnp.log(jnp.sum(jnp.exp(logits - peak), axis=-1)) + peak[..., 0]
    vocabulary = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    picked = jnp.sum(jnp.where(vocabulary == targets[..., None], logits, 0.0), axis=-1)
    return jnp.mean(normaliser - picked)


def checkpointed(body: Callable[..., Any], remat: Remat, layout: Layout) -> Callable[..., Any]:
    """A scan body with what its backward pass keeps: everything, the weight products ("dots"), or only its input.

    Even "none" does not keep gathered weights: they are the outputs of sharding constraints, which are recomputed, so
    the backward pass gathers again as FSDP does instead of holding every layer's weights at once.
    """
    policies: dict[Remat, Callable[..., bool]] = {
        "none": lambda primitive, *_, **__: primitive.name != "sharding_constraint",
        "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
        "full": jax.checkpoint_policies.nothing_saveable,
    }
    if remat not in policies:
        raise UsageError(f"remat {remat!r} is not a policy", fix="choose one of " + ", ".join(policies))
    if remat == "none" and layout.size("fsdp") == 1:
        return body
    return jax.checkpoint(body, prevent_cse=False, policy=policies[remat])


def block_weights(dim: int, ffn: int) -> dict[str, Weight]:
    """The weights of a pre-norm block with biases (GPT-2, ViT), split over "tensor" as Megatron does.

    The fused projection is (dim, 3, dim), so that a slice of q, k or v never crosses a shard.
    """
    return {
        "norm1_scale": Weight((dim,)),
        "norm1_bias": Weight((dim,)),
        "wqkv": Weight((dim, 3, dim), (None, None, "tensor")),
        "bqkv": Weight((3, dim), (None, "tensor")),
        "wo": Weight((dim, dim), ("tensor", None)),
        "bo": Weight((dim,)),
        "norm2_scale": Weight((dim,)),
        "norm2_bias": Weight((dim,)),
        "w1": Weight((dim, ffn), (None, "tensor")),
        "b1": Weight((ffn,), ("tensor",)),
        "w2": Weight((ffn, dim), ("tensor", None)),
        "b2": Weight((dim,)),
    }


def block(
    x: jax.Array,
    w: dict[str, jax.Array],
    *,
    layout: Layout,
    heads: int,
    mask: jax.Array | None = None,
    approximate_gelu: bool = False,
    epsilon: float = 1e-5,
) -> jax.Array:
    """A pre-norm transformer block (B, S, dim): one all-reduce over "tensor" after each of its two halves."""
    batch, length, dim = x.shape
    h = layer_norm(x, w["norm1_scale"], w["norm1_bias"], epsilon=epsilon)
    qkv = jnp.einsum("bsd,dce->bsce", h, w["wqkv"]) + w["bqkv"]
    qkv = layout.constrain(qkv, BATCH, None, None, "tensor")
    q, k, v = (qkv[:, :, i].reshape(batch, length, heads, dim // heads) for i in range(3))
    h = attention(q, k, v, mask).reshape(batch, length, dim)
    x = layout.constrain(x + h @ w["wo"] + w["bo"], BATCH, None, None)
    h = layer_norm(x, w["norm2_scale"], w["norm2_bias"], epsilon=epsilon)
    h = jax.nn.gelu(h @ w["w1"] + w["b1"], approximate=approximate_gelu)
    h = layout.constrain(h, BATCH, None, "tensor")
    return layout.constrain(x + h @ w["w2"] + w["b2"], BATCH, None, None)
