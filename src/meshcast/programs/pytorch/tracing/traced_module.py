"""A PyTorch module as a JAX function of abstract parameters, buffers and inputs.

Imports torch and torchax: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.utils import _pytree as pytree
from torchax.tensor import Tensor

from meshcast.base import UsageError
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.pytorch.steps import HeldModules, with_held_modules
from meshcast.programs.pytorch.tracing.attention import AttentionOperator
from meshcast.programs.pytorch.tracing.environment import (
    array_dtype,
    floating_dtype,
    make_environment,
    tracing,
    unwrapped,
    wrapped,
)
from meshcast.programs.pytorch.tracing.fsdp import precisions
from meshcast.programs.pytorch.tracing.layout import TorchLayout
from meshcast.programs.pytorch.tracing.parallel import gathered, hooks_as_constraints
from meshcast.programs.pytorch.tracing.recompute import recomputed, units
from meshcast.programs.pytorch.tracing.training import optimizer_of, train_step
from meshcast.programs.pytorch.wrappers import unwrapped_module

Parts = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Tracing:
    """One capture: what is passed in, what is fixed, and the function between."""

    def __init__(self, module: Any, args: tuple[Any, ...], options: TorchOptions, *, label: str, platform: str) -> None:
        if not isinstance(module, torch.nn.Module):
            module, options = with_held_modules(module, options, where=label)
        module, options = unwrapped_module(module, options, where=label)
        self.module = module if isinstance(module, torch.nn.Module) else None
        self.function = module
        self.options = options
        self.label = label
        if options.train and self.module is None:
            raise UsageError("train=True needs a module", where=label, fix="give the nn.Module whose parameters train")
        paths, self._structure = pytree.tree_flatten_with_path((args, dict(options.kwargs), tuple(options.targets)))
        self._leaves = [leaf for _, leaf in paths]
        self._tensors = {_place(path): i for i, (path, leaf) in enumerate(paths) if isinstance(leaf, torch.Tensor)}
        self.parameters = dict(self.module.named_parameters()) if self.module is not None else {}
        self.buffers = dict(self.module.named_buffers()) if self.module is not None else {}
        self.inputs = {place: self._leaves[index] for place, index in self._tensors.items()}
        self.layout = TorchLayout.of(self.module, self.parameters, self.inputs, options, where=label)
        self._units = units(self.module, options)
        self.attention = AttentionOperator(options.attention, platform)
        self.environment = make_environment(self.attention)
        self.compute = None if options.compute_dtype is None else floating_dtype(options.compute_dtype, where=label)
        self._precisions = {
            name: tuple(dtype and array_dtype(dtype, where=name) for dtype in (each.used, each.reduced))
            for name, each in precisions(self.module).items()
        }
        self._autocast = None
        if options.autocast is not None:
            floating_dtype(options.autocast, where=label)
            self._autocast = getattr(torch, options.autocast) if isinstance(options.autocast, str) else options.autocast

    @property
    def reduces_wider(self) -> bool:
        """Whether gradients are reduced in another dtype than weights are used in."""
        return any(used is not None and used != reduced for used, reduced in self._precisions.values())

    def warnings(self) -> Iterator[str]:
        """Where the program is not quite what the module says."""
        sparse = (
            [name for name, each in self.module.named_modules() if getattr(each, "sparse", False)]
            if self.module is not None
            else []
        )
        if self.options.train and sparse:
            yield (
                f"gradients of sparse embeddings ({', '.join(sparse[:3])}) are dense here: the optimizer's update reads and "
                "writes whole tables"
            )

    def facts(self) -> Iterator[tuple[str, str]]:
        """How the program was made, once it is traced: what it does, its types, its optimizer, how it attends."""
        options = self.options
        yield "mode", "train" if options.train else "forward"
        if options.train:
            given = options.optimizer
            yield "optimizer", given if isinstance(given, str) else type(given).__name__.lower()
        if self.compute is not None:
            yield "compute_dtype", str(jnp.dtype(self.compute))
        if types := [str(dtype).removeprefix("torch.") for dtype in self.environment.autocast_types]:
            yield "autocast", ",".join(types)
        if self._units:
            yield "remat", options.remat_policy
        if self.attention.kinds:
            yield "attention", ",".join(self.attention.kinds)

    def program(self) -> Parts:
        """The function to trace, its abstract arguments, and options of `jax.jit`."""
        trained = {k: p for k, p in self.parameters.items() if self._is_trained(p)}
        params = {name: self._struct(name, p) for name, p in self.parameters.items()}
        buffers = {name: self._struct(name, b) for name, b in self.buffers.items()}
        batch = {
            place: self.layout.placement.struct(
                tensor.shape, array_dtype(tensor.dtype, where=place), self.layout.inputs[place], where=f"input {place}"
            )
            for place, tensor in self.inputs.items()
        }
        frozen = {name: struct for name, struct in params.items() if name not in trained}
        trained = {name: struct for name, struct in params.items() if name in trained}
        if self.options.train and not trained:
            raise UsageError("no parameter of the module is trained", where=self.label, fix="set requires_grad")
        overwritten = self._overwritten(params, buffers, batch)
        changing = {name: buffers.pop(name) for name in overwritten}
        if self.options.train:
            return self._training(trained, frozen, changing, buffers, batch)

        def forward(params: Any, overwritten_buffers: Any, buffers: Any, batch: Any) -> tuple[Any, Any]:
            result, changed = self.call(params, {**overwritten_buffers, **buffers}, batch)
            return unwrapped(self.environment, result), {name: changed[name] for name in overwritten_buffers}

        arguments = (params, changing, buffers, batch)
        return forward, arguments, self._jit_options(donate=(1,), results=(None, changing))

    def _is_trained(self, parameter: Any) -> bool:
        if not self.options.train or not parameter.requires_grad:
            return False
        return not isinstance(self.module, HeldModules) or id(parameter) in self.module.trained()

    def _training(self, trained: Any, frozen: Any, changing: Any, buffers: Any, batch: Any) -> Parts:
        options = self.options
        if isinstance(self.module, HeldModules):
            options = replace(options, clip_grad_norm=self.module.clip)
        optimizer = optimizer_of(options, where=self.label)
        state = optimizer.state(trained)

        def loss(params: Any, frozen: Any, held: Any, batch: Any) -> tuple[Any, Any]:
            value, changed = self.call({**params, **frozen}, held, batch)
            return self._scalar(value), {name: changed[name] for name in changing}

        arguments = (trained, state, changing, frozen, buffers, batch)
        results = (trained, state, changing, None)
        return train_step(loss, optimizer), arguments, self._jit_options(donate=(0, 1, 2), results=results)

    def call(self, params: Any, buffers: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """The module's output, or its loss where there is one, as torch tensors; and every buffer afterwards."""
        params = {name: self._used(name, value) for name, value in params.items()}
        batch = {place: self._cast(value) for place, value in batch.items()}
        with tracing(self.environment, autocast=self._autocast):
            held = wrapped(self.environment, buffers)
            leaves = list(self._leaves)
            for place, index in self._tensors.items():
                leaves[index] = Tensor(batch[place], self.environment)
            args, kwargs, targets = pytree.tree_unflatten(leaves, self._structure)
            with hooks_as_constraints(self.module, self.layout.placement, self.layout.examples):
                if self.module is None:
                    return self.function(*args, **kwargs), {}
                with recomputed(self.module, self._units, self._gathered):
                    state = {**wrapped(self.environment, params), **held}
                    output = torch.func.functional_call(self.module, state, args, kwargs)
            if self.options.loss is not None:
                output = self.options.loss(output, *targets)
        return output, {name: tensor.jax() for name, tensor in held.items()}

    def _used(self, name: str, value: Any) -> Any:
        """A parameter in the compute dtype; gathered, unless a submodule that is recomputed does so itself."""
        value = self._cast(value)
        inside = any(name.startswith(f"{unit}.") for unit in self._units)
        return value if inside else self._gathered(name, value)

    def _gathered(self, name: str, value: Any) -> Any:
        used, reduced = self._precisions.get(name, (None, None))
        if not jnp.issubdtype(value.dtype, jnp.floating):
            used = reduced = None
        spec = self.layout.parameters.get(name, ())
        return gathered(self.layout.placement, value, spec, used=used, reduced=reduced)

    def _cast(self, value: Any) -> Any:
        floating = self.compute is not None and jnp.issubdtype(value.dtype, jnp.floating)
        return value.astype(self.compute) if floating else value

    def _scalar(self, output: Any) -> Any:
        """The loss among what a module returned."""
        value = output
        if not isinstance(value, torch.Tensor):
            value = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            shape = f" of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
            raise UsageError(
                f"the loss is {type(output).__name__}{shape}, not one number",
                where=self.label,
                fix="give loss=function(output, *targets), or let the module return its loss",
            )
        return value.jax().reshape(()).astype(jnp.float32)

    def _overwritten(self, params: Any, buffers: Any, batch: Any) -> list[str]:
        """Names of the buffers that a call assigns to: running statistics, caches."""
        if not buffers and not isinstance(self.module, HeldModules):  # a step says by a call what it does to gradients
            return []
        found: list[str] = []

        def run(params: Any, buffers: Any, batch: Any) -> None:
            _, after = self.call(params, buffers, batch)
            found.extend(name for name, value in after.items() if value is not buffers[name])

        jax.eval_shape(run, params, buffers, batch)
        return found

    def _struct(self, name: str, tensor: Any) -> jax.ShapeDtypeStruct:
        spec = self.layout.parameters.get(name) or ((),) * tensor.ndim
        return self.layout.placement.struct(tensor.shape, array_dtype(tensor.dtype, where=name), spec, where=name)

    def _jit_options(self, *, donate: tuple[int, ...], results: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"donate_argnums": donate} if self.options.donate else {}
        if self.layout.placement.mesh is not None:
            options["out_shardings"] = jax.tree.map(lambda struct: struct.sharding, results)
        return options


def _place(path: Any) -> str:
    """`0.x` for `args[0]["x"]`, `mask` for the keyword of this name, `targets.0` for the loss's first."""
    head, *rest = (str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", key)))) for key in path)
    return ".".join((*(("targets",) if head == "2" else ()), *rest))
