"""Activation checkpointing: chosen submodules run under `jax.checkpoint`, so that the backward pass computes them again."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import torch
from torch.utils import _pytree as pytree
from torchax.tensor import Tensor
from torchax.view import View

from meshcast.capture.pytorch.options import Remat
from meshcast.errors import UsageError, nearest

_POLICIES: dict[str, Any] = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


@contextmanager
def recomputed(module: Any, patterns: Sequence[str], policy: Remat) -> Iterator[None]:
    """While the module is traced: submodules of matching names keep only what the policy says."""
    known = [name for name, _ in module.named_modules() if name]
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise UsageError(f"no submodule {pattern!r} to recompute", where="remat", fix=nearest(pattern, known[:200]))
    chosen = [module.get_submodule(name) for name in outermost(known, patterns)]
    for each in chosen:
        each.forward = _checkpointed(each, each.forward, _POLICIES[policy])
    try:
        yield
    finally:
        for each in chosen:
            del each.forward


def outermost(known: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Names that match, without those inside of one that does: `layers.*` means layers, not what they are made of."""
    found: list[str] = []
    for name in known:  # parents come first
        inside = any(name.startswith(f"{parent}.") for parent in found)
        if not inside and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            found.append(name)
    return found


def _checkpointed(module: Any, forward: Callable[..., Any], policy: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (Tensor, View))]
        if not places:
            return forward(*args, **kwargs)
        environment = leaves[places[0]]._env
        buffers = [buffer for buffer in module.buffers() if isinstance(buffer, Tensor)]
        shape: list[Any] = []

        def run(arrays: Any, held: Any) -> Any:
            given = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                given[place] = Tensor(array, environment)
            for buffer, value in zip(buffers, held, strict=True):
                buffer._elem = value
            inner_args, inner_kwargs = pytree.tree_unflatten(given, structure)
            results, outer = pytree.tree_flatten(forward(*inner_args, **inner_kwargs))
            shape[:] = [outer, [None if isinstance(r, torch.Tensor) else r for r in results]]
            return [r.jax() for r in results if isinstance(r, torch.Tensor)], [buffer._elem for buffer in buffers]

        before = [buffer._elem for buffer in buffers]
        results, after = jax.checkpoint(run, policy=policy)([leaves[i].jax() for i in places], before)
        for buffer, value in zip(buffers, after, strict=True):
            buffer._elem = value
        arrays = iter(results)
        outer, fixed = shape
        filled = [Tensor(next(arrays), environment) if each is None else each for each in fixed]
        return pytree.tree_unflatten(filled, outer)

    return call
