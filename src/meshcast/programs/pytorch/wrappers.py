"""Wrappers around whole modules: data parallelism is read off, what cannot be seen through is refused.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from meshcast.base import UnsupportedError, UsageError
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.pytorch.placements import axis_names, is_distributed
from meshcast.programs.pytorch.steps import replicas

_REPLICAS = "dp"
_PLAIN = 'give the module inside, with mesh={"dp": N}, fully_shard, or a plan'


def unwrapped_module(module: Any, options: TorchOptions, *, where: str) -> tuple[Any, TorchOptions]:
    """The module to trace; one under `DistributedDataParallel` brings its world along as the mesh's axis `dp`."""
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        options = _replicated(module, options, where=where)
        module = module.module
    for wrapper in replicas(module):
        options = _replicated(wrapper, options, where=where)
    if isinstance(module, torch.jit.ScriptFunction):
        raise _no_script(where)
    for name, each in module.named_modules() if isinstance(module, torch.nn.Module) else ():
        place = f"{where}: submodule {name}" if name else where
        if isinstance(each, torch.jit.ScriptModule):
            raise _no_script(place)
        if each in replicas(module):
            continue
        if isinstance(each, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)) or _is_fsdp1(each):
            raise UnsupportedError(f"{type(each).__name__} is not read here", where=place, fix=_PLAIN)
    return module, options


def _replicated(wrapper: Any, options: TorchOptions, *, where: str) -> TorchOptions:
    if wrapper.mixed_precision is not None:
        raise UnsupportedError(
            "DistributedDataParallel's mixed_precision is not read", where=where, fix='give the option "compute_dtype"'
        )
    world = wrapper.process_group.size()
    if options.mesh is not None:
        devices = math.prod(options.mesh.values())
        if devices % world:
            raise UsageError(
                f"a mesh of {devices} devices for DistributedDataParallel over {world}",
                where=where,
                fix="make them agree, or leave the mesh out",
            )
        return options
    if any(map(is_distributed, wrapper.module.parameters())):
        return options  # their mesh has the axis of the replicas: one that splits no parameter
    mesh = getattr(wrapper, "device_mesh", None)
    return dataclasses.replace(options, mesh={axis_names(mesh)[0] if mesh is not None else _REPLICAS: world})


def _no_script(where: str) -> UnsupportedError:
    return UnsupportedError(
        "TorchScript (torch.jit.script, torch.jit.trace) cannot be traced",
        where=where,
        fix="give the nn.Module or the function that it was made from",
    )


def _is_fsdp1(module: Any) -> bool:
    return type(module).__name__ == "FullyShardedDataParallel"
