"""Operators that are lowered here rather than by torchax: where its way would change the cost or hide the sharding.

Imports torch and torchax: only to be imported after `library.require_torch`.

- `matmul`: torch folds batch dimensions into one; a sharding over two of them does not survive that. Batched dots keep them.
- `batch_norm`: see `normalisation`; torchax's way takes two passes and widens what follows.
- `cross_entropy` of class numbers: the label's logit is picked by comparison, not by a gather, whose gradient is a scatter into
  an array of all logits; over a split vocabulary it stays local up to a reduction.
- `bincount`, `histc`: see `histograms`.
- `embedding_bag`: see `embedding_bags`; torchax's way reads the offsets' values.
- `grouped_mm`: see `grouped_products`; torchax has none.
- `scaled_dot_product_attention`: a fused call or plain products, see `attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops.ops_registry import Operator
from torchax.tensor import OperatorNotFound, Tensor

from meshcast.programs.pytorch.tracing.embedding_bags import embedding_bag
from meshcast.programs.pytorch.tracing.grouped_products import grouped_mm
from meshcast.programs.pytorch.tracing.histograms import bincount, histc
from meshcast.programs.pytorch.tracing.normalisation import batch_norm

_MATMULS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)


def register(environment: Any, attention: Callable[..., Any]) -> None:
    """Puts the operators of this module, and attention, in the place of torchax's."""
    for matmul in _MATMULS:
        _put(environment, matmul, jnp.matmul, on_arrays=True)
    _put(environment, torch.nn.functional.batch_norm, _batch_norm, on_arrays=False)
    _put(environment, torch.nn.functional.cross_entropy, _cross_entropy, on_arrays=False)
    _put(environment, torch.nn.functional.embedding_bag, embedding_bag, on_arrays=True)
    _put(environment, torch.ops.aten._grouped_mm, grouped_mm, on_arrays=True)
    _put(environment, torch.ops.aten.bincount, bincount, on_arrays=True)
    _put(environment, torch.ops.aten.histc, histc, on_arrays=True)
    _put(environment, torch.nn.functional.scaled_dot_product_attention, attention, on_arrays=True)
    _put(environment, torch.ops.aten.scaled_dot_product_attention, attention, on_arrays=True)


def _put(environment: Any, operator: Any, function: Callable[..., Any], *, on_arrays: bool) -> None:
    environment._ops[operator] = Operator(
        operator, function, is_jax_function=on_arrays, is_user_defined=True, needs_env=False, is_view_op=False
    )


def _batch_norm(input: Any, *args: Any, **kwargs: Any) -> Any:
    return Tensor(batch_norm(input, *args, **kwargs), input._env)


def _cross_entropy(
    input: Any,  # torch's own names, which callers may spell
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    logits, labels = input.jax(), target.jax()
    weighted = weight is not None or size_average is not None or reduce is not None or label_smoothing
    if weighted or logits.ndim != 2 or labels.ndim != 1:
        raise OperatorNotFound("cross_entropy")  # torch then takes it apart into operators that torchax has
    wide = logits.astype(jnp.float32)
    peak = jax.lax.stop_gradient(jnp.max(wide, axis=-1, keepdims=True))
    normaliser = jnp.log(jnp.sum(jnp.exp(wide - peak), axis=-1)) + peak[..., 0]
    classes = jax.lax.broadcasted_iota(labels.dtype, wide.shape, 1)
    picked = jnp.sum(jnp.where(classes == labels[:, None], wide, 0.0), axis=-1)
    counted = labels != ignore_index
    losses = jnp.where(counted, normaliser - picked, 0.0)
    if reduction == "sum":
        losses = jnp.sum(losses)
    elif reduction == "mean":
        losses = jnp.sum(losses) / jnp.sum(counted)
    return Tensor(losses.astype(logits.dtype), input._env)
