"""Normalisations of vision models, which several families share; those of language models are the zoo's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    """By the statistics of all axes but the last, in fp32, as in training."""
    wide = x.astype(jnp.float32)
    axes = tuple(range(x.ndim - 1))
    mean = wide.mean(axes)
    variance = (wide**2).mean(axes) - mean**2
    return ((wide - mean) * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias).astype(x.dtype)


def group_norm(x: Any, scale: Any, bias: Any) -> Any:
    """By the statistics of each image's eight groups of channels (N, H, W, C)."""
    groups = x.reshape(*x.shape[:3], 8, -1).astype(jnp.float32)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    return ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape).astype(x.dtype) * scale + bias
