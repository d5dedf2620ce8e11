"""A named program of the zoo: which family builds it, in which mode, from which configuration; and its settings."""

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
MODES = {
    "train": ("train_step", "training step"),
    "forward": ("forward", "forward pass"),
    "prefill": ("prefill", "a prompt that fills the KV cache"),
    "decode": ("decode_step", "one decoding step with a KV cache"),
}
"""What a program may do: the function that builds it, and its name for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A configuration and the family that makes programs of it, one for each of its modes."""

    name: str
    module: str
    config: Any
    summary: str
    modes: tuple[str, ...]
    mode: str = "train"

    def _function(self, mode: str) -> Callable[..., Program]:
        """What builds the program; this is what imports jax."""
        if mode not in self.modes:
            raise UsageError(
                f"{self.name} has no mode {mode!r}", where="--set", fix="its modes are " + ", ".join(self.modes)
            )
        module = importlib.import_module(f"meshcast.models.{self.module}")
        found: Callable[..., Program] = getattr(module, MODES[mode][0])
        return found

    def overrides(self, mode: str | None = None) -> dict[str, Any]:
        """What may be overridden, with its default: the mode, the function's keywords, the configuration's fields."""
        keywords = {
            name: parameter.default
            for name, parameter in inspect.signature(self._function(mode or self.mode)).parameters.items()
            if name not in ("config", "mesh")
        }
        fields = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(self.config)}
        return {"mode": mode or self.mode} | keywords | fields

    def configured(self, **overrides: Any) -> Any:
        """The configuration with some of its fields overridden."""
        fields = {field.name for field in dataclasses.fields(self.config)}
        return dataclasses.replace(self.config, **{k: v for k, v in overrides.items() if k in fields})

    def __call__(self, mesh: Mapping[str, int] | None = None, **overrides: Any) -> Program:
        """The program over a mesh, one device by default."""
        mode = overrides.get("mode", self.mode)
        function = self._function(mode)
        accepted = self.overrides(mode)
        # A size that its class, or a keyword that the function, has as zero is a part that may be left out.
        optional = {field.name for field in dataclasses.fields(self.config) if field.default == 0}
        optional |= {name for name, default in accepted.items() if default == 0 and default is not False}
        settings = {}
        for name, value in overrides.items():
            if name not in accepted:
                raise UsageError(
                    f"{self.name} has no setting {name!r} in mode {mode}, {nearest(name, accepted)}",
                    fix="its settings are " + ", ".join(accepted),
                )
            settings[name] = _setting(name, value, accepted[name], least=0 if name in optional else 1)
        fields = {field.name for field in dataclasses.fields(self.config)}
        keywords = {name: value for name, value in settings.items() if name not in fields and name != "mode"}
        return function(self.configured(**settings), mesh=mesh, **keywords)

    def parameters(self) -> int:
        """How many numbers the model learns."""
        module = importlib.import_module(f"meshcast.models.{self.module}")
        return num_parameters(module.weights(self.config))


def num_parameters(params: Any) -> int:
    """The number of parameters in a pytree of arrays, abstract arrays or weights."""
    import jax

    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _setting(name: str, value: Any, default: Any, *, least: int) -> Any:
    """A value of its default's kind, refused where it is not; counts are positive, or zero where they may be left out."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = number and isinstance(value, int)
    wanted = "a positive integer" if least else "a positive integer or zero"
    fits = whole and value >= least
    if isinstance(default, bool):
        wanted, fits = "true or false", isinstance(value, bool)
    elif isinstance(default, float):
        wanted, fits = "a number of zero or more", number and value >= 0
    elif isinstance(default, tuple):
        value = (value,) if whole else value
        wanted = "a list of positive integers, such as 3,4,6,3"
        fits = isinstance(value, tuple) and all(type(each) is int and each > 0 for each in value)
    elif isinstance(default, str):
        value = "none" if value is None else value  # a word of some settings, and how nothing is written
        wanted, fits = "text", isinstance(value, str)
    # Otherwise it is a count, or has no default: a length that follows from the model.
    if not fits:
        raise UsageError(
            f"the setting {name} is {wanted}, not {value!r}", where="--set", fix=f"its default is {default!r}"
        )
    return value
