"""The zoo: reference programs written plainly in JAX, captured over any mesh with neither devices nor weights.

Listing the zoo imports no jax; building a program does. A builder returns `(fn, args, options)`: `args` are pytrees of
`jax.ShapeDtypeStruct`, `options` go to `jax.jit`. The names of `fn`'s parameters are the roles of its arguments:
`params`, `opt_state`, `batch`, `cache`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.errors import UsageError, nearest

Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A named program: a function of one of the modules here, and the configuration it is given."""

    name: str
    module: str
    function: str
    config: str
    summary: str

    def _resolve(self) -> tuple[Callable[..., Program], Any]:
        """The function and its configuration; this is what imports jax."""
        module = importlib.import_module(f"{__name__}.{self.module}")
        return getattr(module, self.function), getattr(module, self.config)

    def overrides(self) -> dict[str, Any]:
        """What may be overridden, with its default: the function's keywords, then the configuration's fields."""
        function, config = self._resolve()
        keywords = {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in ("config", "mesh")
        }
        return keywords | {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}

    def __call__(self, mesh: Mapping[str, int] | None = None, **overrides: Any) -> Program:
        """The program over a mesh, one device by default."""
        function, config = self._resolve()
        accepted = self.overrides()
        for name in overrides:
            if name not in accepted:
                raise UsageError(
                    f"{self.name} has no setting {name!r}, {nearest(name, accepted)}",
                    fix="its settings are " + ", ".join(accepted),
                )
            _check_setting(name, overrides[name], accepted[name])
        fields = {field.name for field in dataclasses.fields(config)}
        config = dataclasses.replace(config, **{name: value for name, value in overrides.items() if name in fields})
        keywords = {name: value for name, value in overrides.items() if name not in fields}
        return function(config, mesh=mesh, **keywords)


def _check_setting(name: str, value: Any, default: Any) -> None:
    """Raises when a value is not of its default's kind; counts are positive."""
    if default is None or default is inspect.Parameter.empty:
        return
    wanted = (
        "true or false"
        if isinstance(default, bool)
        else {int: "a positive integer", float: "a number"}.get(type(default), "text")
    )
    fits = {
        "true or false": isinstance(value, bool),
        "a positive integer": isinstance(value, int) and not isinstance(value, bool) and value > 0,
        "a number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "text": isinstance(value, type(default)),
    }[wanted]
    if not fits:
        raise UsageError(
            f"the setting {name} is {wanted}, not {value!r}", where="--set", fix=f"its default is {default!r}"
        )


_LLAMA = {
    "llama3-tiny": ("TINY", "Llama 3 with two small layers"),
    "llama3.2-1b": ("LLAMA_1B", "Llama 3.2 1B, tied embeddings"),
    "llama3-8b": ("LLAMA_8B", "Llama 3 8B"),
    "llama3-70b": ("LLAMA_70B", "Llama 3 70B"),
    "llama3-405b": ("LLAMA_405B", "Llama 3.1 405B"),
}
_TASKS = {
    "": ("train_step", "training step"),
    "-forward": ("forward", "forward pass"),
    "-decode": ("decode_step", "one decoding step with a KV cache"),
}
_TRAINED = {
    "gpt2-tiny": ("gpt", "TINY", "GPT-2 with two small layers"),
    "gpt2-small": ("gpt", "SMALL", "GPT-2 124M"),
    "gpt2-medium": ("gpt", "MEDIUM", "GPT-2 355M"),
    "gpt2-large": ("gpt", "LARGE", "GPT-2 774M"),
    "gpt2-xl": ("gpt", "XL", "GPT-2 1.6B"),
    "mixtral-tiny": ("moe", "TINY", "Mixtral with two small layers of eight experts"),
    "mixtral-8x7b": ("moe", "MIXTRAL_8X7B", "Mixtral 8x7B"),
    "mixtral-8x22b": ("moe", "MIXTRAL_8X22B", "Mixtral 8x22B"),
    "resnet-tiny": ("resnet", "TINY", "ResNet with two small bottlenecks"),
    "resnet18": ("resnet", "RESNET18", "ResNet-18"),
    "resnet50": ("resnet", "RESNET50", "ResNet-50 v1.5"),
    "vit-tiny": ("vit", "TINY", "Vision Transformer with two small layers"),
    "vit-b16": ("vit", "BASE_16", "ViT-B/16"),
    "vit-l16": ("vit", "LARGE_16", "ViT-L/16"),
    "dlrm-tiny": ("dlrm", "TINY", "DLRM with eight small tables"),
    "dlrm-small": ("dlrm", "SMALL", "DLRM's published benchmark: 8 tables of 1M rows, 100 lookups each"),
    "dlrm-criteo": ("dlrm", "CRITEO", "DLRM of MLPerf's size: 26 tables, 204M rows"),
    "mlp-tiny": ("mlp_shard_map", "TINY", "MLP with hand-written tensor parallelism, small"),
    "mlp-large": ("mlp_shard_map", "LARGE", "MLP with hand-written tensor parallelism, the width of Llama 70B"),
}


def zoo() -> dict[str, Builder]:
    """Every program by name."""
    builders = [
        Builder(name=name + suffix, module="llama", function=function, config=config, summary=f"{summary}: {task}")
        for name, (config, summary) in _LLAMA.items()
        for suffix, (function, task) in _TASKS.items()
    ]
    builders += [
        Builder(name=name, module=module, function="train_step", config=config, summary=f"{summary}: training step")
        for name, (module, config, summary) in _TRAINED.items()
    ]
    return {builder.name: builder for builder in builders}


def build(name: str, mesh: Mapping[str, int] | None = None, **overrides: Any) -> Program:
    """The named program over a mesh (`{"fsdp": 4, "tensor": 2}`; one device by default), with settings overridden."""
    builders = zoo()
    if name not in builders:
        raise UsageError(f"no model {name!r} in the zoo", fix=nearest(name, builders))
    return builders[name](mesh, **overrides)


def num_parameters(params: Any) -> int:
    """The number of parameters in a pytree of arrays or abstract arrays."""
    import jax

    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
