"""What `fully_shard` left on a module: the axes it works over, when weights are freed, in which precision it runs.

Mixed precision as FSDP has it: parameters are cast to `param_dtype` before they are gathered, gradients are scattered in
`reduce_dtype`, floating-point inputs of each wrapped module are cast to `param_dtype`, its results to `output_dtype`.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from meshcast.programs.pytorch.placements import axis_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Dtypes of torch that a parameter is used in, and that its gradient is reduced in; None for its own."""

    used: Any = None
    reduced: Any = None


def states(module: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, module and FSDP's state of every submodule that `fully_shard` was called on, parents first."""
    for name, each in module.named_modules() if module is not None else ():
        if hasattr(each, "_get_fsdp_state"):
            yield name, each, each._get_fsdp_state()


def axes(module: Any) -> Iterator[str]:
    """Axes of the meshes that `fully_shard` was given."""
    for _, _, state in states(module):
        for group in state._fsdp_param_groups:
            yield from axis_names(group.mesh_info.mesh)


def frees_weights(module: Any) -> bool:
    """Whether gathered weights are freed after the forward pass (`reshard_after_forward`)."""
    state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
    return state is not None and any(group.post_forward_mesh_info is not None for group in state._fsdp_param_groups)


def precisions(module: Any) -> Mapping[str, Precision]:
    """Precisions by parameter, where a policy states any: that of the innermost wrapped module around it counts."""
    found: dict[str, Precision] = {}
    for name, each, state in states(module):
        policy = state._mp_policy
        precision = Precision(used=policy.param_dtype, reduced=policy.reduce_dtype or policy.param_dtype)
        for key, _ in each.named_parameters():
            found[f"{name}.{key}" if name else key] = precision
    return {name: precision for name, precision in found.items() if precision != Precision()}


@contextmanager
def activations_cast(module: Any) -> Iterator[None]:
    """While the module is traced: inputs and results of wrapped modules are cast as their policies say."""
    with ExitStack() as stack:
        for _, each, state in states(module):
            policy = state._mp_policy
            if policy.cast_forward_inputs and policy.param_dtype is not None:
                hook = each.register_forward_pre_hook(_inputs_to(policy.param_dtype), prepend=True, with_kwargs=True)
                stack.callback(hook.remove)
            if policy.output_dtype is not None:
                stack.callback(each.register_forward_hook(_results_to(policy.output_dtype)).remove)
        yield


def _inputs_to(dtype: Any) -> Any:
    return lambda _module, args, kwargs: _cast((args, kwargs), dtype)


def _results_to(dtype: Any) -> Any:
    return lambda _module, _args, output: _cast(output, dtype)


def _cast(tensors: Any, dtype: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, tensors
    )
