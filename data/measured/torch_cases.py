"""How the models of the folders `h200-torch-*` are built, without weights: each folder's `cases.py` has a table of them, `CASES`.

`cases.py` of a folder ends with `build, for_meshcast, __getattr__ = functions_of(CASES)`: its `NAME()` returns
`(module, args, options)` as `meshcast predict cases.py:NAME` takes it; `build(NAME, device)` gives the same module and inputs
for a run (`benchmarks/torch_models.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

try:
    import torchvision.models as tv  # noqa: F401
except (
    RuntimeError
):  # built for CUDA, beside a CPU build of torch: its own operators are absent, and no model here calls them
    import sys

    for loaded in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[loaded]
    _register = torch.library.register_fake

    def _unless_torchvision(op: Any, *args: Any, **options: Any) -> Any:
        return (lambda f: f) if str(op).startswith("torchvision::") else _register(op, *args, **options)

    torch.library.register_fake = _unless_torchvision  # type: ignore[assignment]
    import torchvision.models as tv  # noqa: F401

    torch.library.register_fake = _register


@dataclass(frozen=True)
class Drawn:
    """An input: its shape, and for integers the number below which they are drawn."""

    shape: tuple[int, ...]
    below: int | None = None

    def on(self, device: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
        """The tensor: without values on the meta device."""
        if device == "meta":
            return torch.empty(self.shape, dtype=dtype if self.below is None else torch.long, device="meta")
        drawn = torch.Generator().manual_seed(seed)
        if self.below is not None:
            return torch.randint(0, self.below, self.shape, generator=drawn).to(device)
        return torch.randn(self.shape, generator=drawn).to(device=device, dtype=dtype)


@dataclass(frozen=True)
class Case:
    """A model with its inputs, and how a step of it runs."""

    make: Callable[[], torch.nn.Module]
    inputs: tuple[Drawn, ...] = ()
    named: dict[str, Drawn] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)  # further keyword arguments of the module
    targets: tuple[Drawn, ...] = ()
    train: bool = True
    optimizer: str = "adamw"
    autocast: str | None = None
    dtype: torch.dtype = torch.float32


class Answer(torch.nn.Module):
    """A module whose result is one tensor: its loss, or the first of its results."""

    def __init__(self, module: torch.nn.Module, flags: dict[str, bool], *, loss: bool) -> None:
        """Wraps it."""
        super().__init__()
        self.module, self.flags, self.loss = module, flags, loss

    def forward(self, *args: Any, **named: Any) -> Any:
        """The tensor."""
        found = self.module(*args, **named, **self.flags)
        if isinstance(found, torch.Tensor):
            return found
        return found.loss if self.loss else found[0]


def images(batch: int, size: int = 224) -> Drawn:
    """Pictures."""
    return Drawn((batch, 3, size, size))


def vision(make: Callable[..., torch.nn.Module], batch: int, **how: Any) -> Case:
    """A classifier of torchvision."""
    classes = (Drawn((batch,), 1000),) if how.get("train", True) else ()
    return Case(make=lambda: make(weights=None), inputs=(images(batch),), targets=classes, **how)


def language(make: str, config: dict[str, Any], batch: int, length: int, *, labels: bool, **how: Any) -> Case:
    """A language model of transformers by its class and configuration."""
    tokens = Drawn((batch, length), config["vocab_size"])
    named = {"input_ids": tokens, **({"labels": tokens} if labels else {})}
    return Case(make=lambda: transformer(make, config), named=named, train=labels, **how)


def transformer(name: str, config: dict[str, Any]) -> torch.nn.Module:
    """A model of transformers from a configuration alone."""
    import transformers

    kind = getattr(transformers, name)
    made: torch.nn.Module = kind(kind.config_class(**config))
    return made


BF16 = torch.bfloat16
AMP = {"autocast": "bfloat16"}


Built = tuple[torch.nn.Module, list[torch.Tensor], dict[str, torch.Tensor], list[torch.Tensor]]


def _built(case: Case, device: str, *, answers: bool) -> Built:
    """The module on the device, its arguments by place and by name, and its targets."""
    try:
        with torch.device(device):
            module = case.make()
    except NotImplementedError:  # some read numbers while they are made, which the meta device has not
        module = case.make().to(device)
    module = module.to(case.dtype).train(case.train)
    if answers:
        module = Answer(module, case.flags, loss=case.train)
        module.train(case.train)
    args = [drawn.on(device, case.dtype, seed) for seed, drawn in enumerate(case.inputs)]
    named = {key: drawn.on(device, case.dtype, 50 + seed) for seed, (key, drawn) in enumerate(case.named.items())}
    targets = [drawn.on(device, case.dtype, 90 + seed) for seed, drawn in enumerate(case.targets)]
    return module, args, named, targets


def _for_meshcast(case: Case, built: Built) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """What `predict` takes."""
    module, args, named, targets = built
    options: dict[str, Any] = {"kwargs": named} if named else {}
    if case.train:
        options |= {"train": True, "optimizer": case.optimizer}
        if targets:
            options |= {"loss": F.cross_entropy, "targets": tuple(targets)}
        if case.autocast:
            options["autocast"] = case.autocast
    return module, tuple(args), options


def functions_of(
    cases: Mapping[str, Case],
) -> tuple[Callable[[str, str], Built], Callable[[str], Any], Callable[[str], Any]]:
    """`build`, `for_meshcast` and `__getattr__` of a module with a table of cases; the last gives each case as a function."""

    def build(name: str, device: str) -> Built:
        # Models of transformers return an object, of which the loss or the answer is taken.
        return _built(cases[name], device, answers=not name.startswith("tv_"))

    def for_meshcast(name: str) -> Any:
        return _for_meshcast(cases[name], build(name, "meta"))

    def case(name: str) -> Callable[[], Any]:
        if name in cases:
            return lambda: for_meshcast(name)
        raise AttributeError(name)

    return build, for_meshcast, case
