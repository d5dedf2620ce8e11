"""PyTorch's parallel wrappers while a module is traced: their hooks become sharding constraints.

A module under `parallelize_module` or `fully_shard` runs on shards, and hooks of its submodules move data: they make
DTensors of inputs, redistribute them and take the local part again. Here the program is that of all devices together, so
the same hooks run, `DTensor.from_local` and `redistribute` pin shardings, and `to_local` does nothing. FSDP's own
hooks are left out: a parameter that is split over an axis that splits the batch too is gathered where it is used, and
its gradient is scattered back, which is what they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import torch
from torchax.tensor import Tensor
from torchax.view import View

from meshcast.programs.pytorch.placements import InputPlacement, Spec, axis_names, spec_of_placements
from meshcast.programs.pytorch.tracing.fsdp import activations_cast

_FSDP = "torch.distributed.fsdp"


def gathered(placement: InputPlacement, value: Any, spec: Spec, *, used: Any = None, reduced: Any = None) -> Any:
    """A parameter as it is used: whole along the batch axes, its gradient split as the parameter is stored.

    Args:
        placement: The mesh, and the axes that split a batch.
        value: The parameter as it is stored.
        spec: Where it lies.
        used: The dtype that it is gathered and used in; its own by default.
        reduced: The dtype that its gradient is reduced in; that of its use by default.
    """
    used, stored = used or value.dtype, value.dtype
    split = {axis for axes in spec for axis in axes} & set(placement.batch_axes)
    if not split:
        return value.astype(used)
    whole_spec = tuple(tuple(axis for axis in axes if axis not in split) for axes in spec)

    def gather(value: Any) -> Any:
        # Pinned as stored first: a recomputed gather reads the parameter behind a barrier, and propagation would gather
        # before it.
        return placement.constrain(placement.constrain(value.astype(used), spec), whole_spec)

    def scatter(gradient: Any) -> Any:
        return placement.constrain(gradient.astype(reduced or used), spec).astype(stored)

    whole = jax.custom_vjp(gather)
    whole.defvjp(lambda value: (gather(value), None), lambda _, gradient: (scatter(gradient),))
    return whole(value)


@contextmanager
def hooks_as_constraints(module: Any, placement: InputPlacement, examples: int) -> Iterator[None]:
    """While the module is traced: see above.

    Args:
        module: The module whose hooks run.
        placement: The mesh, and the axes that split a batch.
        examples: The size of dimension 0 of the inputs; activations that start with a multiple of it are split alike.
    """
    with ExitStack() as stack:
        if module is not None:
            stack.enter_context(_without_fsdp_hooks(module))
            stack.enter_context(activations_cast(module))
        if placement.mesh is not None:
            stack.enter_context(_shards_are_global(placement, examples))
            if placement.batch_axes and examples:
                stack.enter_context(_batches_stay_split(placement, examples))
        yield


@contextmanager
def _without_fsdp_hooks(module: Any) -> Iterator[None]:
    removed: list[tuple[Any, dict[int, Any]]] = []
    for each in module.modules():
        for hooks in (each._forward_pre_hooks, each._forward_hooks):
            theirs = [key for key, hook in hooks.items() if _home(hook).startswith(_FSDP)]
            if theirs:
                removed.append((hooks, dict(hooks)))
                for key in theirs:
                    del hooks[key]
    try:
        yield
    finally:
        for hooks, before in removed:
            hooks.clear()
            hooks.update(before)


def _home(hook: Any) -> str:
    owner = getattr(hook, "__self__", None)
    return str(getattr(type(owner) if owner is not None else hook, "__module__", "") or "")


@contextmanager
def _shards_are_global(placement: InputPlacement, examples: int) -> Iterator[None]:
    """DTensor's ways in, across and out act on tensors of the whole mesh."""
    from torch.distributed.tensor import DTensor

    def pinned(tensor: Any, placements: Sequence[Any] | None, device_mesh: Any) -> Any:
        if not placements or any(each.is_partial() for each in placements):
            return (
                tensor  # partial sums have no sharding of their own: the next redistribution says what becomes of them
            )
        axes = axis_names(device_mesh) if device_mesh is not None else seen[-1]
        spec = list(spec_of_placements(placements, axes, tensor.ndim, where="redistribute"))
        if tensor.ndim and tensor.shape[0] % max(examples, 1) == 0 and tensor.ndim > 1:
            first = tuple(axis for axis in placement.batch_axes if axis not in {a for axes in spec for a in axes})
            spec[0] = first + spec[0]
        return Tensor(placement.constrain(tensor.jax(), tuple(spec)), tensor._env)

    seen: list[tuple[str, ...]] = []

    def from_local(local: Any, device_mesh: Any = None, placements: Any = None, **_: Any) -> Any:
        if not isinstance(local, (Tensor, View)):
            return original(local, device_mesh, placements, **_)
        seen.append(axis_names(device_mesh))
        return pinned(local, placements, device_mesh)

    def redistribute(tensor: Any, device_mesh: Any = None, placements: Any = None, **_: Any) -> Any:
        return pinned(tensor, placements, device_mesh)

    original = DTensor.from_local
    methods = {"redistribute": redistribute, "to_local": lambda tensor, **_: tensor, "placements": None}
    DTensor.from_local = staticmethod(from_local)
    for kind in (Tensor, View):
        for name, method in methods.items():
            setattr(kind, name, method)
    try:
        yield
    finally:
        DTensor.from_local = original
        for kind in (Tensor, View):
            for name in methods:
                delattr(kind, name)


@contextmanager
def _batches_stay_split(placement: InputPlacement, examples: int) -> Iterator[None]:
    """Every submodule's result stays split along dimension 0, or the sharding of weights would reach activations."""

    def pin(_module: Any, _args: Any, output: Any) -> Any:
        if not isinstance(output, (Tensor, View)) or output.ndim < 2 or output.shape[0] % examples:
            return None
        spec = placement.batch(output.shape)
        return Tensor(placement.constrain(output.jax(), spec, open_dims=True), output._env)

    handle = torch.nn.modules.module.register_module_forward_hook(pin)
    try:
        yield
    finally:
        handle.remove()
