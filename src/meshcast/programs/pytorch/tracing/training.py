"""A training step around a module's loss: gradients by JAX, the optimizer's update, everything overwritten in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import UnsupportedError, UsageError
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.zoo import adamw, sgd


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """State and update of one optimizer; the state has its parameter's dtype and sharding, as in PyTorch."""

    state: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


def optimizer_of(options: TorchOptions, *, where: str) -> Optimizer:
    """The optimizer that the options name, with the hyperparameters of a `torch.optim` object where one is given."""
    given = options.optimizer
    if isinstance(given, str):
        return _optimizer(given, {}, options.clip_grad_norm)
    kind = type(given).__name__
    groups = getattr(given, "param_groups", None)
    if not groups:
        raise UsageError(f"{kind} is no optimizer", where=where, fix='give "adamw", "sgd" or a torch.optim object')
    if kind not in ("AdamW", "Adam", "SGD"):
        raise UnsupportedError(f"the optimizer {kind} is not modelled", where=where, fix="use AdamW, Adam or SGD")
    return _optimizer("sgd" if kind == "SGD" else "adamw", groups[0], options.clip_grad_norm)


def _optimizer(name: str, group: Mapping[str, Any], clip: float | None) -> Optimizer:
    if name == "adamw":
        if group.get("amsgrad"):
            raise UnsupportedError("amsgrad is not modelled", where="optimizer", fix="leave it out")
        decay = float(group.get("weight_decay", 0.1))
        return Optimizer(
            state=lambda params: {"m": _like(params), "v": _like(params), "count": _counter(params)},
            update=lambda params, grads, state: adamw(params, grads, state, clip=clip, weight_decay=decay),
        )
    momentum = float(group.get("momentum", 0.9))
    decay = float(group.get("weight_decay", 0.0))

    def update(params: Any, grads: Any, state: Any) -> tuple[Any, Any]:
        grads = clipped(grads, clip)
        if not momentum:
            return sgd(params, grads, _zeros(params), momentum=0.0, weight_decay=decay)[0], state
        return sgd(params, grads, state, momentum=momentum, weight_decay=decay)

    return Optimizer(state=lambda params: _like(params) if momentum else {}, update=update)


def clipped(grads: Any, norm: float | None) -> Any:
    """Gradients scaled down to a global norm, as `torch.nn.utils.clip_grad_norm_` does."""
    if norm is None:
        return grads
    total = jnp.sqrt(sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, norm / (total + 1e-6))
    return jax.tree.map(lambda g: g * scale.astype(g.dtype), grads)


def _like(params: Any) -> Any:
    return jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype, sharding=p.sharding), params)


def _zeros(params: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, params)


def _counter(params: Any) -> jax.ShapeDtypeStruct:
    sharding = jax.tree.leaves(params)[0].sharding
    return jax.ShapeDtypeStruct((), jnp.int32, sharding=sharding and sharding.update(spec=()))


def train_step(loss: Callable[..., tuple[Any, Any]], optimizer: Optimizer) -> Callable[..., Any]:
    """The step of `loss(params, frozen, buffers, batch) -> (value, overwritten buffers)`."""

    def step(
        params: Any, opt_state: Any, overwritten_buffers: Any, frozen_params: Any, buffers: Any, batch: Any
    ) -> tuple[Any, Any, Any, Any]:
        held = {**overwritten_buffers, **buffers}
        (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(params, frozen_params, held, batch)
        stepped, state = optimizer.update(params, grads, opt_state)
        state = jax.tree.map(lambda new, old: new.astype(old.dtype), state, opt_state)
        return stepped, state, changed, value

    return step
