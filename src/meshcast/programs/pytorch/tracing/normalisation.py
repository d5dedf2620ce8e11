"""Batch normalisation in one pass: both statistics in fp32, results in the activations' dtype, as cuDNN's kernels work."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def batch_norm(
    input: Any,  # torch's own names, which callers may spell
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    stored: Any = None,
) -> Any:
    """The normalised array; running statistics are overwritten in training.

    Args:
        input: A tensor with channels in dimension 1.
        running_mean: A tensor, or None.
        running_var: A tensor, or None.
        weight: A tensor of scales, or None.
        bias: A tensor of offsets, or None.
        training: Whether the batch's own statistics are used.
        momentum: The share of the batch in the new running statistics.
        eps: Added to the variance.
        stored: The same values with channels last, where there are any; the result is then so too.
    """
    x = input.jax() if stored is None else stored
    channel = 1 if stored is None else x.ndim - 1
    kept = tuple(-1 if dim == channel else 1 for dim in range(x.ndim))
    wide = x.astype(jnp.float32)
    if training or running_mean is None:
        axes = tuple(dim for dim in range(x.ndim) if dim != channel)
        mean = jnp.mean(wide, axis=axes)
        variance = jnp.mean(jnp.square(wide), axis=axes) - jnp.square(mean)
        count = x.size // x.shape[channel]
        for running, seen in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
            if running is not None:
                old = running.jax()
                running._elem = ((1 - momentum) * old + momentum * seen).astype(old.dtype)
    else:
        mean, variance = (each.jax().astype(jnp.float32) for each in (running_mean, running_var))
    scaled = ((wide - mean.reshape(kept)) * jax.lax.rsqrt(variance + eps).reshape(kept)).astype(x.dtype)
    if weight is not None:
        scaled = scaled * weight.jax().astype(x.dtype).reshape(kept)
    if bias is not None:
        scaled = scaled + bias.jax().astype(x.dtype).reshape(kept)
    return scaled
