"""Ways to attend: plain products, the backend's fused kernel, and two ways over sequences that are split by position."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp

from meshcast.base import InfeasibleError, UnsupportedError, UsageError
from meshcast.zoo.fused_attention import AttentionCall, fused_call
from meshcast.zoo.layers.context_attention import balanced_positions, gathered, parts, ring
from meshcast.zoo.layers.pieces import attention, causal_attention, causal_mask, soft_cap
from meshcast.zoo.layers.saving import kept
from meshcast.zoo.sharding import Axes, MeshLayout
from meshcast.zoo.words import BATCH
from meshcast.zoo.words import AttentionWord as AttentionWord

KINDS = get_args(AttentionWord)
FUSED = ("flash", "flash-ring", "flash-all-gather", "flash-parts")
_WITHOUT_WINDOWS = {"flash-ring": ring, "flash-parts": parts}
_HEADS: tuple[Axes, ...] = (BATCH, "context", "tensor", None)
_WHOLE: tuple[Axes, ...] = (BATCH, None, "tensor", None)
_FAR = -1e30


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    layout: MeshLayout,
    causal: bool = True,
    window: int = 0,
    cap: float = 0.0,
) -> jax.Array:
    """Attention of q (B, S, H, D) over k, v (B, S, K, D), as the layout says; a chunk of a prompt has more keys than queries.

    - `plain`: all scores, masked: `layers.causal_attention`; `plain-bf16` keeps them, and what becomes of them, in bf16 all the
      way, as MaxText does by default (`float32_logits` is off). `auto` is decided for a device before (`jobs.planned.attending`).
    - `flash`: the backend's fused kernel on every device's heads, scores in tiles (Dao 2022). Where "context" splits the
      sequence, `flash-all-gather` (the same as `flash`), `flash-ring` and `flash-parts` (PyTorch's), positions in the order of
      `positions`.
    - `all-gather`: each device gathers all keys and values for its own positions (Llama 3, section 3.3.2). It is also what
      `plain` comes to where "context" splits the sequence.
    - `ring`: keys and values go round, a softmax of each part at a time (Liu 2023).
    """
    kind = layout.attention
    if kind not in KINDS:
        raise UsageError(f"attention {kind!r} is not known", where="--set", fix="one of " + ", ".join(KINDS))
    split = layout.size("context") > 1
    if kind in FUSED:
        return _fused(q, k, v, layout=layout, causal=causal, window=window, cap=cap)
    if kind == "ring" and split:
        part = partial(_ring, shards=layout.size("context"), causal=causal, window=window, cap=cap)
        gone_round: jax.Array = layout.local(part, (_HEADS,) * 3, _HEADS)(q, k, v)
        return gone_round
    if not split:
        scores = jnp.bfloat16 if kind == "plain-bf16" else jnp.float32
        if causal:
            return causal_attention(q, k, v, window=window, cap=cap, scores=scores)
        return attention(q, k, v, cap=cap, scored_in=scores)
    k, v = (layout.moved(x, stored=_HEADS, used=_WHOLE) for x in (k, v))
    return attention(q, k, v, causal_mask(q.shape[1], window) if causal else None, cap=cap)


def is_reordered(layout: MeshLayout) -> bool:
    """Whether sequences are stored in another order than by position, so that "context" shares causal attention evenly."""
    return layout.attention in FUSED and layout.size("context") > 1


def positions(length: int, layout: MeshLayout) -> jax.Array:
    """The positions of a sequence's tokens in the order that they are stored."""
    if not is_reordered(layout):
        return jnp.arange(length)
    shards = layout.size("context")
    if length % (2 * shards):
        raise InfeasibleError(
            f"fused attention over context={shards} splits a sequence into {2 * shards} chunks, which do not divide {length}",
            fix=f"use a sequence of {-(-length // (2 * shards)) * 2 * shards}, or attention=all-gather",
        )
    return jnp.asarray(balanced_positions(length, shards))


def _fused(
    q: jax.Array, k: jax.Array, v: jax.Array, *, layout: MeshLayout, causal: bool, window: int, cap: float
) -> jax.Array:
    shards = layout.size("context")
    window = window if window < k.shape[1] else 0
    how = AttentionCall(scale=q.shape[-1] ** -0.5, causal=causal, window=window, cap=cap)
    if shards == 1:
        kernel: Any = partial(fused_call, how=how)
    elif layout.attention in _WITHOUT_WINDOWS and window:
        raise UnsupportedError(
            f"a ring of fused blocks has no window, and this model's is {window}", fix="use attention=flash-all-gather"
        )
    else:
        kernel = partial(_WITHOUT_WINDOWS.get(layout.attention, gathered), how=how, shards=shards)
    if layout.attention == "flash-parts" and shards > 1:
        k, v = (layout.constrain(jnp.repeat(x, q.shape[2] // x.shape[2], axis=2), *_HEADS) for x in (k, v))
    found: jax.Array = layout.local(kernel, (_HEADS,) * 3, _HEADS)(q, k, v)
    return found


def _ring(q: jax.Array, k: jax.Array, v: jax.Array, *, shards: int, causal: bool, window: int, cap: float) -> jax.Array:
    """One device's part: its queries see the keys of every device in turn.

    With maxima m, sums l and weighted values o of the parts seen so far, a new part's m', l', o' are merged by
    M = max(m, m'): l = l exp(m - M) + l' exp(m' - M), o likewise, and the result is o / l (Milakov 2018).
    """
    batch, length, heads, width = q.shape
    q = q.reshape(batch, length, k.shape[2], heads // k.shape[2], width)
    own = jax.lax.axis_index("context")
    onwards = [(source, (source - 1) % shards) for source in range(shards)]

    def part(step: Any, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        scores = kept(jnp.einsum("bskgd,btkd->bkgst", q, k)).astype(jnp.float32) * width**-0.5
        scores = soft_cap(scores, cap)
        if causal:
            s = own * length + jnp.arange(length)[:, None]
            t = (own + step) % shards * length + jnp.arange(length)[None, :]
            scores = jnp.where((s >= t) & (s < t + window) if window else s >= t, scores, jnp.float32(_FAR))
        peak = jnp.max(scores, axis=-1, keepdims=True)
        weights = jnp.exp(scores - peak)
        values = kept(jnp.einsum("bkgst,btkd->bkgsd", weights.astype(v.dtype), v)).astype(jnp.float32)
        return peak, jnp.sum(weights, axis=-1, keepdims=True), values

    def turn(carry: Any, step: jax.Array) -> tuple[Any, None]:
        k, v, (peak, total, values) = carry
        k, v = (jax.lax.ppermute(x, "context", onwards) for x in (k, v))
        new_peak, new_total, new_values = part(step, k, v)
        highest = jnp.maximum(peak, new_peak)
        old, new = jnp.exp(peak - highest), jnp.exp(new_peak - highest)
        return (k, v, (highest, total * old + new_total * new, values * old + new_values * new)), None

    (_, _, (_, total, values)), _ = jax.lax.scan(turn, (k, v, part(0, k, v)), jnp.arange(1, shards))
    y = (values / total).astype(v.dtype).transpose(0, 3, 1, 2, 4)
    return y.reshape(batch, length, heads, v.shape[-1])
