"""`embedding_bag`: rows of a table, gathered and reduced per bag, with shapes that no value decides.

Bags of equal size are a dimension of the indices. Bags of any size are given by the offsets at which they start: index i
lies in bag |{b : offset_b <= i}| - 1, and bags become segments. The costs are those of a gather and of a reduction or a
scatter, and of the gather's gradient, a scatter into the whole table.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import UnsupportedError

_SEGMENTS = {"sum": jax.ops.segment_sum, "mean": jax.ops.segment_sum, "max": jax.ops.segment_max}


def embedding_bag(
    input: Any,  # torch's own names, which callers may spell
    weight: Any,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of the table's rows per bag, `[bags, width]`; a bag without rows gives zeros."""
    if max_norm is not None:
        raise UnsupportedError("max_norm rescales the table in place, which is not modelled", fix="leave it out")
    if scale_grad_by_freq:
        raise UnsupportedError("scale_grad_by_freq is not modelled", fix="leave it out")
    rows = jnp.take(weight, input, axis=0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None].astype(rows.dtype)
    counted = jnp.ones(input.shape, bool) if padding_idx is None else input != padding_idx % weight.shape[0]
    neutral = -jnp.inf if mode == "max" else 0
    if padding_idx is not None:
        rows = jnp.where(counted[..., None], rows, neutral)
    if input.ndim == 2:
        reduced = jnp.max(rows, axis=1) if mode == "max" else jnp.sum(rows, axis=1)
        sizes = jnp.sum(counted, axis=1)
        may_be_empty = padding_idx is not None
    else:
        bags = offsets.shape[0] - include_last_offset
        bag = jnp.searchsorted(offsets[:bags], jnp.arange(input.shape[0]), side="right") - 1
        reduced = _SEGMENTS[mode](rows, bag, num_segments=bags)
        sizes = jax.ops.segment_sum(counted.astype(jnp.int32), bag, num_segments=bags)
        may_be_empty = True
    if mode == "mean":
        return reduced / jnp.maximum(sizes, 1)[:, None].astype(reduced.dtype)
    return jnp.where(sizes[:, None] > 0, reduced, 0) if mode == "max" and may_be_empty else reduced
