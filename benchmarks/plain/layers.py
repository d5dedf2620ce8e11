"""Norms, positions, attention and losses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.plain.catalogue import F32


def rms(x: Any, g: Any) -> Any:
    """RMSNorm in f32."""
    y = x.astype(F32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g.astype(x.dtype)


def layer_norm(x: Any, g: Any, b: Any = 0.0) -> Any:
    """LayerNorm in the type of x."""
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * g + b


def rotate_half(x: Any, positions: Any) -> Any:
    """Rotary positions by halves; x is [B, S, H, D]."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * (10000.0 ** (-jnp.arange(half) / half))
    cos, sin = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    a, b = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def rotate_pairs(x: Any, positions: Any) -> Any:
    """Rotary positions of neighbours."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * (10000.0 ** (-jnp.arange(half) / half))
    cos, sin = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape).astype(x.dtype)


def dropout(key: Any, x: Any, rate: float = 0.1) -> Any:
    """Elements are dropped, the others scaled."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), jnp.zeros_like(x))


def heads_of(x: Any, heads: int) -> Any:
    """[B, S, H, D]."""
    return x.reshape(*x.shape[:2], heads, -1)


def attend(q: Any, k: Any, v: Any, bias: Any = None, mask: Any = None, wide: bool = True) -> Any:
    """[B, S, H, D]; an additive or a boolean mask; a softmax in f32 or in their type."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    scores = scores.astype(F32) if wide else scores
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(v.dtype), v)


def token_loss(logits: Any, labels: Any, how: str) -> Any:
    """Cross entropy in one of four styles."""
    logits = logits.astype(F32)
    logs = jax.nn.log_softmax(logits, -1)
    if how == "take":
        return -jnp.mean(jnp.take_along_axis(logs, labels[..., None], -1))
    if how == "one-hot":
        return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, logits.shape[-1]) * logs, -1))
    if how == "smooth":
        hot = jax.nn.one_hot(labels, logits.shape[-1]) * 0.9 + 0.1 / logits.shape[-1]
        return -jnp.mean(jnp.sum(hot * logs, -1))
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)
