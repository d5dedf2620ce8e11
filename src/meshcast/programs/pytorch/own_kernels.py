"""A program of PyTorch's own kernels: recorded, launched as eager PyTorch or `torch.compile` would, written as StableHLO.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from meshcast.programs.files import from_bytes
from meshcast.programs.program import Program
from meshcast.programs.pytorch.launches.recorded_program import program_text
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.pytorch.placements import is_distributed
from meshcast.programs.pytorch.recording.calls import Recording
from meshcast.programs.pytorch.recording.recorder import record
from meshcast.programs.pytorch.steps import with_held_modules
from meshcast.programs.pytorch.wrappers import unwrapped_module


class _Called(torch.nn.Module):  # type: ignore[misc]
    """A function of tensors as a module without parameters."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.__dict__["function"] = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results."""
        return self.__dict__["function"](*args, **kwargs)


def why_not(module: Any, args: tuple[Any, ...], options: TorchOptions, platform: str) -> str:
    """Why a module's own kernels cannot be recorded; empty where they can."""
    if platform != "cuda":
        return f"its kernels are known for CUDA, not for {platform}"
    if options.mesh is not None or options.plan or options.inputs:
        return "it is spread over several devices"
    parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    tensors = [leaf for leaf in pytree.tree_leaves((args, dict(options.kwargs))) if isinstance(leaf, torch.Tensor)]
    if any(map(is_distributed, (*parameters, *tensors))) or isinstance(
        module, torch.nn.parallel.DistributedDataParallel
    ):
        return "it is spread over several devices"
    if options.remat or options.compute_dtype is not None:
        return f"the option {'remat' if options.remat else 'compute_dtype'} has another meaning there"
    return ""


def captured(module: Any, args: tuple[Any, ...], options: TorchOptions, *, label: str, compiled: bool) -> Program:
    """The program of a step's own kernels."""
    if not isinstance(module, torch.nn.Module):
        module, options = with_held_modules(module, options, where=label)
    module, options = unwrapped_module(module, options, where=label)
    if not isinstance(module, torch.nn.Module):
        module = _Called(module)
    recording = record(module, args, options, label=label, compiled=compiled)
    text = program_text(recording, compiled=compiled)
    source = f"torch:{label} ({'torch.compile' if compiled else 'eager'})"
    program = from_bytes(text.encode(), name=label, where=source)
    return replace(program, source=source, facts=tuple(_facts(recording, options)))


def _facts(recording: Recording, options: TorchOptions) -> Iterator[tuple[str, str]]:
    yield "mode", "train" if options.train else "forward"
    if options.train:
        given = options.optimizer
        yield "optimizer", given if isinstance(given, str) else type(given).__name__.lower()
    if options.autocast is not None:
        yield "autocast", str(options.autocast).removeprefix("torch.")
    kinds = {op.name for op in recording.ops if op.name.startswith("_scaled_dot_product")}
    if kinds:
        known = ("cudnn", "flash", "efficient")
        yield "attention", ",".join(sorted({next(kind for kind in known if kind in name) for name in kinds}))
