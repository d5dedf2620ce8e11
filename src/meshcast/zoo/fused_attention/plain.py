"""Fused attention's mathematics in plain products, for backends without such a kernel: what the calls are tested by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshcast.zoo.fused_attention.asked import AttentionCall

_FAR = -1e30


def forward(query: Any, key: Any, value: Any, *, how: AttentionCall, statistics: bool) -> list[Any]:
    """The output, and the logarithm of each query's sum of exponentials."""
    k, v = _of_keys(key, how), _of_keys(value, how)
    q = _of_queries(query, k, how)
    scores = _scores(q, k, how)
    logs = jax.scipy.special.logsumexp(scores, axis=-1)
    weights = jnp.exp(scores - logs[..., None]).astype(value.dtype)
    output = _back(jnp.einsum("bkgst,bktd->bkgsd", weights, v).astype(query.dtype), how)
    return [output, *([logs.reshape(logs.shape[0], -1, logs.shape[-1])] if statistics else [])]


def backward(
    query: Any, key: Any, value: Any, statistics: Any, gradient: Any, output: Any, *, how: AttentionCall
) -> list[Any]:
    """The gradients, with P = exp(S - L) from the statistics L: dS = P (dP - sum(dO O)) (Dao 2022, appendix B)."""
    k, v = _of_keys(key, how), _of_keys(value, how)
    q, slope, made = (_of_queries(x, k, how) for x in (query, gradient, output))
    slope, made = slope.astype(jnp.float32), made.astype(jnp.float32)
    scores, pulled = jax.vjp(lambda q, k: _scores(q, k, how), q, k)
    weights = jnp.exp(scores - statistics.reshape(scores.shape[:-1])[..., None])
    dv = jnp.einsum("bkgst,bkgsd->bktd", weights, slope).astype(value.dtype)
    dp = jnp.einsum("bkgsd,bktd->bkgst", slope, v.astype(jnp.float32))
    dq, dk = pulled(weights * (dp - jnp.sum(slope * made, axis=-1, keepdims=True)))
    return [_back(dq, how), *(_of_keys(x, how) for x in (dk, dv))]


def _of_keys(x: Any, how: AttentionCall) -> Any:
    """Heads before lengths, and back."""
    return x if how.heads_first else x.transpose(0, 2, 1, 3)


def _of_queries(x: Any, keys: Any, how: AttentionCall) -> Any:
    """As (B, key heads, query heads of each, S, D)."""
    x = _of_keys(x, how)
    return x.reshape(x.shape[0], keys.shape[1], x.shape[1] // keys.shape[1], *x.shape[2:])


def _back(x: Any, how: AttentionCall) -> Any:
    return _of_keys(x.reshape(x.shape[0], -1, *x.shape[3:]), how)


def _scores(q: Any, k: Any, how: AttentionCall) -> Any:
    scores = jnp.einsum("bkgsd,bktd->bkgst", q, k).astype(jnp.float32) * how.scale
    scores = how.cap * jnp.tanh(scores / how.cap) if how.cap else scores
    if not how.causal:
        return scores
    length, keys = scores.shape[-2:]
    s, t = jnp.arange(length)[:, None] + keys - length, jnp.arange(keys)[None, :]
    seen = (s >= t) & (s < t + how.window) if how.window else s >= t
    return jnp.where(seen, scores, jnp.float32(_FAR))
