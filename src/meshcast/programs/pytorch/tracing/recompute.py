"""What the backward pass computes again: submodules under `jax.checkpoint`, and weights that FSDP gathers twice.

Imports torch and torchax: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import torch
from torch.utils import _pytree as pytree
from torchax.tensor import Tensor
from torchax.view import View

from meshcast.base import UsageError, nearest
from meshcast.programs.pytorch.options import TorchOptions, names
from meshcast.programs.pytorch.tracing.fsdp import frees_weights
from meshcast.zoo import POLICIES

Gather = Callable[[str, Any], Any]
"""A parameter's array as it is used, by the parameter's name."""
_POLICIES: dict[str, Any] = {
    "full": None,
    "selective": POLICIES["selective"],
}


def _all_but_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    """Everything is kept but gathered weights, which are results of sharding constraints."""
    return bool(primitive.name != "sharding_constraint")


def units(module: Any, options: TorchOptions) -> dict[str, Any]:
    """Policies by the name of the submodule they hold for.

    They are those that the options name, and those under `fully_shard` that free their gathered weights after the
    forward pass (`reshard_after_forward`). `layers.*` means layers, not what they are made of: of nested names the
    outermost counts.
    """
    if module is None or not options.train:
        return {}
    known = [name for name, _ in module.named_modules() if name]  # parents come first
    patterns = names(options.remat)
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise UsageError(f"no submodule {pattern!r} to recompute", where="remat", fix=nearest(pattern, known[:200]))
    found: dict[str, Any] = {}
    for name in known:
        if any(name.startswith(f"{parent}.") for parent in found):
            continue
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            found[name] = _POLICIES[options.remat_policy]
        elif frees_weights(module.get_submodule(name)):
            found[name] = _all_but_gathered
    return found


@contextmanager
def recomputed(module: Any, policies: Mapping[str, Any], gather: Gather) -> Iterator[None]:
    """While the module is traced: the named submodules, and what it runs under `torch.utils.checkpoint`, are recomputed.

    Raises:
        UsageError: None of the submodules was called, as is the case for a `ModuleDict` whose members are.
    """
    called: set[str] = set()
    chosen = {name: module.get_submodule(name) for name in policies}
    # torch keeps the function that `checkpoint` really runs in this attribute, whoever imported `checkpoint` by name.
    inner = torch.utils.checkpoint.checkpoint.__wrapped__
    before = getattr(inner, "__dynamo_disable", None)
    setattr(inner, "__dynamo_disable", _user_checkpoint(module))  # a class would mangle the name written out
    for name, each in chosen.items():
        each.forward = _recomputed_forward(each, name, policies[name], gather, called)
    try:
        yield
        asked = [name for name, policy in policies.items() if policy is not _all_but_gathered]
        if asked and not called.intersection(asked):
            raise UsageError(
                f"{', '.join(asked[:3])}: never called as modules, so nothing is recomputed there",
                where="remat",
                fix="name submodules that are called: members of a ModuleDict or ModuleList, not the container",
            )
    finally:
        setattr(inner, "__dynamo_disable", before)
        for each in chosen.values():
            del each.forward


def _recomputed_forward(module: Any, name: str, policy: Any, gather: Gather, called: set[str]) -> Callable[..., Any]:
    forward = module.forward

    def with_gathered(*args: Any, **kwargs: Any) -> Any:
        called.add(name)
        held = [(f"{name}.{key}", tensor, tensor._elem) for key, tensor in module.named_parameters()]
        for key, tensor, stored in held:
            tensor._elem = gather(key, stored)
        try:
            return forward(*args, **kwargs)
        finally:
            for _, tensor, stored in held:
                tensor._elem = stored

    return lambda *args, **kwargs: _checkpointed(with_gathered, args, kwargs, policy, module)


def _user_checkpoint(module: Any) -> Callable[..., Any]:
    """`torch.utils.checkpoint.checkpoint`, without what concerns its own engine."""

    def call(
        function: Callable[..., Any],
        *args: Any,
        use_reentrant: Any = None,
        context_fn: Any = None,
        determinism_check: Any = None,
        debug: Any = None,
        early_stop: Any = None,
        preserve_rng_state: Any = None,
        **kwargs: Any,
    ) -> Any:
        holder = function if isinstance(function, torch.nn.Module) else module
        return _checkpointed(function, args, kwargs, None, holder)

    return call


def _checkpointed(function: Callable[..., Any], args: Any, kwargs: Any, policy: Any, holder: Any) -> Any:
    """`function(*args, **kwargs)` under `jax.checkpoint`; buffers of `holder` that it overwrites are results too."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (Tensor, View))]
    if not places:
        return function(*args, **kwargs)
    environment = leaves[places[0]]._env
    buffers = [buffer for buffer in holder.buffers() if isinstance(buffer, Tensor)]
    outside: list[Any] = []  # the structure of the results, those that are no tensors, buffers overwritten

    def run(arrays: Any, held: Any) -> Any:
        given = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            given[place] = Tensor(array, environment)
        for buffer, value in zip(buffers, held, strict=True):
            buffer._elem = value
        inner_args, inner_kwargs = pytree.tree_unflatten(given, structure)
        results, shape = pytree.tree_flatten(function(*inner_args, **inner_kwargs))
        fixed = [None if isinstance(each, torch.Tensor) else each for each in results]
        changed = [i for i, value in enumerate(held) if buffers[i]._elem is not value]
        outside[:] = [shape, fixed, changed]
        tensors = [each.jax() for each in results if isinstance(each, torch.Tensor)]
        return tensors, [buffers[i]._elem for i in changed]

    before = [buffer._elem for buffer in buffers]
    tensors, after = jax.checkpoint(run, policy=policy)([leaves[i].jax() for i in places], before)
    shape, fixed, changed = outside
    for buffer, value in zip(buffers, before, strict=True):
        buffer._elem = value
    for i, value in zip(changed, after, strict=True):
        buffers[i]._elem = value
    arrays = iter(tensors)
    return pytree.tree_unflatten([Tensor(next(arrays), environment) if e is None else e for e in fixed], shape)
