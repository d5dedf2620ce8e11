"""A function that holds modules: its parameters are arguments; a whole training step in it is taken apart.

`loss.backward()`, `optimizer.step()` and `clip_grad_norm_` are noted while the function runs, and do nothing. JAX then
differentiates the loss and the optimizer's update is added, as for a module with `train`: the same mathematics.

Imports torch: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any

import torch

from meshcast.base import UnsupportedError, UsageError
from meshcast.programs.pytorch.options import TorchOptions
from meshcast.programs.stand_ins import standing_in

_ONE_STEP = 'one backward() and one step() make a program; give (module, args, {"train": True, "loss": ...}) otherwise'


class HeldModules(torch.nn.Module):  # type: ignore[misc]
    """The modules that a function uses, with the function as their `forward`."""

    def __init__(self, function: Callable[..., Any], modules: Sequence[tuple[str, Any]], optimizer: Any) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.clip: float | None = None
        self.__dict__["function"] = function  # not a submodule, whatever it is
        for name, module in modules:
            while hasattr(self, name):
                name += "_"
            self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results; of a training step the loss."""
        function = self.__dict__["function"]
        with ExitStack() as stack:
            for each in replicas(self):  # what they do to gradients, the mesh does
                stack.enter_context(standing_in(each, forward=functools.partial(_inner, each)))
            if self.optimizer is None:
                return function(*args, **kwargs)
            notes = stack.enter_context(_noted(self.optimizer))
            function(*args, **kwargs)
        if len(notes.losses) != 1 or notes.steps != 1:
            raise UnsupportedError(
                f"backward() was called {len(notes.losses)} times and step() {notes.steps} times", fix=_ONE_STEP
            )
        self.clip = notes.clip
        return notes.losses[0]

    def trained(self) -> frozenset[int]:
        """Identities of the parameters that the optimizer updates."""
        return frozenset(id(each) for group in self.optimizer.param_groups for each in group["params"])


def replicas(module: Any) -> list[Any]:
    """Modules under `DistributedDataParallel` that a function holds."""
    kind = torch.nn.parallel.DistributedDataParallel
    return [each for each in module.children() if isinstance(each, kind)] if isinstance(module, HeldModules) else []


def _inner(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
    return wrapper.module(*args, **kwargs)


def with_held_modules(function: Any, options: TorchOptions, *, where: str) -> tuple[Any, TorchOptions]:
    """A function of tensors as a module, where it holds any; with its optimizer where it is a training step."""
    held = {id(each): (name, each) for name, each in _held(function)}.values()
    modules = [(name, each) for name, each in held if isinstance(each, torch.nn.Module)]
    optimizers = [each for _, each in held if isinstance(each, torch.optim.Optimizer)]
    if not modules:
        return function, options
    if len(optimizers) > 1:
        raise UnsupportedError(f"the function holds {len(optimizers)} optimizers", where=where, fix=_ONE_STEP)
    if not optimizers:
        return HeldModules(function, modules, None), options
    if options.loss is not None or options.targets:
        raise UsageError(
            "a training step has its own loss", where=where, fix="leave loss and targets out, or give the module itself"
        )
    return HeldModules(function, modules, optimizers[0]), dataclasses.replace(
        options, train=True, optimizer=optimizers[0]
    )


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function refers to: its closure, its globals, its object, arguments bound to it, and their attributes."""
    for name, value in _referred(function):
        yield name, value
        if not callable(value) and not inspect.ismodule(value):
            yield from getattr(value, "__dict__", {}).items()  # `trainer.model`


def _referred(function: Any) -> Iterator[tuple[str, Any]]:
    while isinstance(function, functools.partial):
        bound = (*function.args, *function.keywords.values())
        yield from ((f"argument{i}", each) for i, each in enumerate(bound))
        function = function.func
    if inspect.ismethod(function):
        yield "self", function.__self__
        function = function.__func__
    if inspect.isfunction(function):
        yield from inspect.getclosurevars(function).nonlocals.items()
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _global_names(code: CodeType) -> Iterator[str]:
    """Names that code, or a function inside it, looks up among its globals."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


@dataclasses.dataclass(slots=True, kw_only=True)
class _Notes:
    losses: list[Any] = dataclasses.field(default_factory=list)
    steps: int = 0
    clip: float | None = None


@contextmanager
def _noted(optimizer: Any) -> Iterator[_Notes]:
    """While a step is traced: what concerns gradients is noted instead of done."""
    notes = _Notes()

    @functools.wraps(optimizer.step)  # learning-rate schedules leave a mark on it, and warn where they miss it
    def step(*_: Any, **__: Any) -> None:
        notes.steps += 1
        optimizer._opt_called = True  # what schedules look for, too

    def clip(_parameters: Any, max_norm: float, *_: Any, **__: Any) -> None:
        notes.clip = float(max_norm)

    def item(tensor: Any) -> Any:
        # After the backward pass a value is for logging: the program is whole without it.
        return 0.0 if notes.losses else read(tensor)

    read = torch.Tensor.item
    with (
        standing_in(torch.Tensor, backward=lambda loss, *_, **__: notes.losses.append(loss), item=item),
        # What `clip_grad_norm_` calls, whoever imported it by name.
        standing_in(torch.nn.utils.clip_grad, _clip_grads_with_norm_=clip),
        standing_in(optimizer, step=step, zero_grad=lambda *_, **__: None),
    ):
        yield notes
