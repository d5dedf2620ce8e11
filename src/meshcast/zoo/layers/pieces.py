"""Transformer pieces shared by the models: norms, rotary positions, attention, blocks, the loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.layers.saving import ATTENTION, POLICIES, asked_for, kept
from meshcast.zoo.layers.saving import Remat as Remat
from meshcast.zoo.sharding import MeshLayout, ShardedWeight
from meshcast.zoo.words import BATCH as BATCH

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=True),
    "exact_gelu": partial(jax.nn.gelu, approximate=False),
    "relu": jax.nn.relu,
    "squared_relu": lambda x: jnp.square(jax.nn.relu(x)),
}


def cast(params: Any, dtype: Any) -> Any:
    """Parameters in the compute dtype, still sharded as stored: gathers and gradient reductions move this dtype."""
    return jax.tree.map(lambda p: p.astype(dtype), params)


def rms_norm(x: jax.Array, scale: jax.Array, *, epsilon: float = 1e-5) -> jax.Array:
    """The root-mean-square normalisation over the last axis, computed in fp32."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    return wide.astype(x.dtype) * scale


def layer_norm(x: jax.Array, scale: jax.Array | None, bias: jax.Array | None, *, epsilon: float = 1e-5) -> jax.Array:
    """The normalisation to zero mean and unit variance over the last axis, computed in fp32."""
    wide = x.astype(jnp.float32)
    wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + epsilon)
    y = wide.astype(x.dtype)
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


def rotary(x: jax.Array, positions: jax.Array, *, theta: float) -> jax.Array:
    """Heads (..., sequence, heads, width) rotated by position (Su 2021), halves paired as in Llama's checkpoints."""
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions[..., None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    left, right = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None = None,
    *, cap: float = 0.0, bias: jax.Array | None = None, sinks: jax.Array | None = None, heads_first: bool = False,
    scored_in: DTypeLike = jnp.float32,
) -> jax.Array:  # fmt: skip
    """Attention of q (B, S, H, D) over k, v (B, T, K, D): H/K query heads share a key head, softmax in fp32 or `scored_in`.

    With `heads_first` keys and values lie as a cache keeps them, (B, K, T, D).

    With a `cap` the scores are squashed to +-cap by `cap * tanh(score / cap)` (Gemma 2). A `bias` (H, T) is added to
    them. `sinks` (H,) are scores of no position: they take their share of the softmax and nothing of the values.
    """
    batch, length, heads, width = q.shape
    keys, (shared, room) = ("bktd", k.shape[1:3]) if heads_first else ("btkd", k.shape[2:0:-1])
    q = q.reshape(batch, length, shared, heads // shared, width)
    scores = jnp.einsum(f"bskgd,{keys}->bkgst", q, k)
    scores = soft_cap((kept(scores) if cap else scores).astype(scored_in) * width**-0.5, cap)
    scores = scores if bias is None else scores + bias.reshape(shared, -1, 1, room)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.asarray(-1e30, scored_in))
    if sinks is not None:
        # The shares of a softmax over the scores and the sink are those over the scores, times exp(z) / (exp(z) + exp(sink)).
        total = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
        taken = jax.nn.sigmoid(total - sinks.astype(jnp.float32).reshape(shared, -1, 1, 1))
        weights = (jnp.exp(scores - total) * taken).astype(v.dtype)
    elif scored_in != jnp.float32:
        # As MaxText's dot_product attention: sums are divided by behind the product, over heads instead of scores.
        weights = kept(jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))), ATTENTION)
        total = jnp.moveaxis(jnp.sum(weights, axis=-1, keepdims=True), 3, 1)
        found = jnp.einsum(f"bkgst,{keys}->bskgd", weights, v) / total
        return found.reshape(batch, length, heads, v.shape[-1])
    else:
        weights = softmax(scores, v.dtype)
    return jnp.einsum(f"bkgst,{keys}->bskgd", weights, v).reshape(batch, length, heads, v.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(scores: jax.Array, dtype: Any) -> jax.Array:
    """The softmax over the last axis, computed in fp32; its backward pass reads the result as it is passed on."""
    return jax.nn.softmax(scores, axis=-1).astype(dtype)


def _softmax_forward(scores: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    weights = kept(softmax(scores, dtype), ATTENTION)
    return weights, weights


def _softmax_backward(dtype: Any, weights: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    wide, gradient = weights.astype(jnp.float32), gradient.astype(jnp.float32)
    return (wide * (gradient - jnp.sum(wide * gradient, axis=-1, keepdims=True)),)


softmax.defvjp(_softmax_forward, _softmax_backward)


def causal_mask(length: int, window: int = 0, past: int = 0) -> jax.Array:
    """Whether position t (last axis) is visible from position s: not later, and within the window where there is one.

    The s are the last `length` of all positions, behind `past` others.
    """
    s, t = jnp.arange(past, past + length)[:, None], jnp.arange(past + length)[None, :]
    return (s >= t) & (s < t + window) if window else s >= t


def causal_attention(
    q: jax.Array, k: jax.Array, v: jax.Array,
    *, window: int = 0, cap: float = 0.0, bias: jax.Array | None = None, sinks: jax.Array | None = None,
    scores: DTypeLike = jnp.float32,
) -> jax.Array:  # fmt: skip
    """Attention to earlier positions, of the last `window` ones where there is a window; keys may be more than queries.

    Where the window divides a longer sequence, blocks of it see themselves and their predecessor: S * 2W scores
    instead of S * S. Otherwise scores are computed for all pairs and masked; so they are where they have a bias.
    """
    batch, length = q.shape[:2]
    if past := k.shape[1] - length:
        return attention(q, k, v, causal_mask(length, window, past), cap=cap, bias=bias, sinks=sinks, scored_in=scores)
    if not window or length <= window:
        return attention(q, k, v, causal_mask(length), cap=cap, bias=bias, sinks=sinks, scored_in=scores)
    if length % window or length < 3 * window or bias is not None:
        return attention(q, k, v, causal_mask(length, window), cap=cap, bias=bias, sinks=sinks, scored_in=scores)

    def blocks(x: jax.Array) -> jax.Array:
        return x.reshape(batch, length // window, window, *x.shape[2:])

    def with_predecessor(x: jax.Array) -> jax.Array:
        earlier = jnp.pad(x[:, :-1], ((0, 0), (1, 0)) + ((0, 0),) * (x.ndim - 2))
        return jnp.concatenate([earlier, x], axis=2)

    s, t = jnp.arange(window)[:, None], jnp.arange(2 * window)[None, :]
    band = (t > s) & (t <= s + window)
    # The first block has no predecessor.
    masks = band & ((jnp.arange(length // window)[:, None, None] > 0) | (t >= window))
    near = partial(attention, cap=cap, sinks=sinks, scored_in=scores)
    k, v = with_predecessor(blocks(k)), with_predecessor(blocks(v))
    return jax.vmap(near, in_axes=(1, 1, 1, 0), out_axes=1)(blocks(q), k, v, masks).reshape(
        batch, length, q.shape[2], v.shape[-1]
    )


def embed(table: jax.Array, tokens: jax.Array, layout: MeshLayout) -> jax.Array:
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


def checkpointed(body: Callable[..., Any], remat: Remat, layout: MeshLayout) -> Callable[..., Any]:
    """A scan body with what its backward pass keeps.

    That is everything that differentiating its ops one by one asks for ("autodiff"), what kernels with a
    backward pass of their own ask for ("none", see `saving.kept`), of these what attention
    asks for, its heads and its result ("attention"), its heads and the sum behind it ("projections"), its heads alone
    ("heads"), all products and fused kernels ("products"), the
    products with weights alone ("selective"), fused kernels and every second product with weights ("alternate", see
    `products.products`), or only its input ("full"; "whole" where the layer runs again to its end, see `saving.asked_for`).

    Even "autodiff" and "none" do not keep gathered weights: they are the outputs of sharding constraints, which are
    recomputed, so the backward pass gathers again as FSDP does instead of holding every layer's weights at once.
    """
    if remat not in POLICIES:
        raise UsageError(f"remat {remat!r} is not a policy", fix="choose one of " + ", ".join(POLICIES))
    if remat == "autodiff" and layout.size(("fsdp", "context")) == 1:
        return body
    inner = body
    if remat == "whole":

        def inner(*args: Any, **kwargs: Any) -> Any:
            return asked_for(body(*args, **kwargs))

    return jax.checkpoint(inner, prevent_cse=False, policy=POLICIES[remat])


def one_layer(stacked: Any) -> Any:
    """The weights of one layer of a stack, as a scan's body sees them."""
    return jax.tree.map(lambda weight: ShardedWeight(weight.shape[1:], weight.axes[1:]), stacked)


def stacked(layer: Any, layers: int) -> Any:
    """The weights of one layer, for every layer of a stack."""
    return jax.tree.map(lambda weight: weight.stacked(layers), layer)


def clipped_swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    """The gate of gpt-oss (2025): values clipped to 7, x sigmoid(1.702 x) times the other half plus one."""
    gate, up = jnp.minimum(gate, 7.0), jnp.clip(up, -7.0, 7.0)
    return gate * jax.nn.sigmoid(1.702 * gate) * (up + 1)


def gate_with(activation: str, gate: jax.Array, up: jax.Array) -> jax.Array:
    """The two halves of a gated layer as one."""
    return clipped_swiglu(gate, up) if activation == "clipped_swiglu" else ACTIVATIONS[activation](gate) * up


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Values squashed to +-cap; unchanged where the cap is zero."""
    return cap * jnp.tanh(x / cap) if cap else x
