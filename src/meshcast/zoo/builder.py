"""A named program of the zoo: which family builds it, in which mode, from which configuration; and its settings."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from meshcast.base import UsageError, nearest
from meshcast.zoo.dtypes import dtype_named
from meshcast.zoo.words import SERVE

ModelProgram = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
MODES = {
    "train": ("train_step", "training step"),
    "forward": ("forward", "forward pass"),
    "prefill": ("prefill", "a prompt that fills the KV cache"),
    "decode": ("decode_step", "one decoding step with a KV cache"),
}
"""What a program may do: the function that builds it, and its name for people."""
ANSWERING = ("prefill", "decode")
"""The modes that answer token by token."""
LARGEST = 2**31 - 1
"""Of a size: positions and indices are 32-bit."""
_LENGTHS = {"seq": "context", "context": "seq"}
"""What a mode may have instead: a prompt is so long, a cache has so much room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A configuration and the family that makes programs of it, one for each of its modes."""

    name: str
    module: str
    config: Any
    summary: str
    modes: tuple[str, ...]
    mode: str = "train"
    notes: tuple[str, ...] = ()
    presets: tuple[tuple[str, Any], ...] = ()  # defaults of its own, in modes that have such a setting

    @property
    def family(self) -> ModuleType:
        """The module that its programs, weights and sections are made by; this is what imports jax."""
        return importlib.import_module(f"meshcast.zoo.architectures.{self.module}")

    @property
    def all_modes(self) -> tuple[str, ...]:
        """What `--set mode` takes: those of one program each, and `serve` where there are a prompt's pass and a step."""
        return (*self.modes, SERVE) if set(ANSWERING) <= set(self.modes) else self.modes

    def not_one_program(self, mode: str) -> UsageError:
        """Why a mode that is none of the model's own is not one program: it is two, or there is no such mode."""
        if mode == SERVE and mode in self.all_modes:
            return UsageError(
                "mode serve is two programs, and one is asked for here",
                where="--set",
                fix="mode=prefill or mode=decode; predict, show, trace and compare take mode=serve",
            )
        return UsageError(
            f"{self.name} has no mode {mode!r}", where="--set", fix="its modes are " + ", ".join(self.all_modes)
        )

    def _function(self, mode: str) -> Callable[..., ModelProgram]:
        """What builds the program."""
        if mode not in self.modes:
            raise self.not_one_program(mode)
        found: Callable[..., ModelProgram] = getattr(self.family, MODES[mode][0])
        return found

    def overrides(self, mode: str | None = None) -> dict[str, Any]:
        """What may be overridden, with its default: the mode, the function's keywords, the configuration's fields."""
        keywords = _keywords(self._function(mode or self.mode))
        fields = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(self.config)}
        presets = {name: value for name, value in self.presets if name in keywords}
        return {"mode": mode or self.mode} | keywords | presets | fields | self._answering(mode or self.mode)

    def _answering(self, mode: str) -> dict[str, Any]:
        """What a configuration has otherwise in a mode that answers: weights and a cache of each layer's own.

        A scan copies each layer's share out of stacks first, which more than doubles the bytes of a step that reads
        everything once; serving engines keep layers apart.
        """
        return {"scan": False} if mode in ANSWERING and hasattr(self.config, "scan") else {}

    def configured(self, **overrides: Any) -> Any:
        """The configuration with some of its fields overridden; other settings are passed over.

        Raises:
            UsageError: A value is not of its field's kind.
        """
        fields = {field.name: field.default for field in dataclasses.fields(self.config)}
        changed = {
            # A size that its class has as zero is a part that may be left out.
            name: _setting(name, value, getattr(self.config, name), least=0 if fields[name] == 0 else 1)
            for name, value in overrides.items()
            if name in fields
        }
        return dataclasses.replace(self.config, **changed)

    def settled(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that are not the own defaults of their mode's function, each of its kind; nothing is traced for it.

        Raises:
            UsageError: The mode has no such setting, or a value is not of its kind.
        """
        mode = overrides.get("mode", self.mode)
        accepted = self.overrides(mode)
        # A size that its class, or a keyword that the function, has as zero is a part that may be left out.
        optional = {field.name for field in dataclasses.fields(self.config) if field.default == 0}
        optional |= {name for name, default in accepted.items() if default == 0 and default is not False}
        settings = {name: value for name, value in self.presets if name in accepted} | self._answering(mode)
        for name, value in overrides.items():
            if name not in accepted:
                raise self._unknown(name, mode, accepted)
            settings[name] = _setting(name, value, accepted[name], least=0 if name in optional else 1)
        return settings

    def __call__(self, mesh: Mapping[str, int] | None = None, **overrides: Any) -> ModelProgram:
        """The program over a mesh, one device by default."""
        mode = overrides.get("mode", self.mode)
        function, settings = self._function(mode), self.settled(overrides)
        fields = {field.name for field in dataclasses.fields(self.config)}
        keywords = {name: value for name, value in settings.items() if name not in fields and name != "mode"}
        return function(self.configured(**settings), mesh=mesh, **keywords)

    def remarks(self, mesh: Mapping[str, int] | None = None, **overrides: Any) -> tuple[str, ...]:
        """Remarks on the program: on the model, and on how this mesh shares it out."""
        module = self.family
        if not hasattr(module, "remarks"):
            return self.notes
        known = inspect.signature(module.remarks).parameters
        settings = {name: value for name, value in overrides.items() if name in known}
        return (*self.notes, *module.remarks(self.configured(**overrides), mesh, **settings))

    def _unknown(self, name: str, mode: str, accepted: Mapping[str, Any]) -> UsageError:
        """What is said of a setting that a mode does not have: which modes do, or the nearest name."""
        others = [other for other in self.modes if other != mode and name in self.overrides(other)]
        instead = _LENGTHS.get(name)
        hint = nearest(name, accepted)
        if others:
            hint = f"it is one of mode {', '.join(others)}"
            hint += f"; here it is {instead}" if instead in accepted else ""
        message = f"{self.name} has no setting {name!r} in mode {mode}, {hint}"
        return UsageError(message, where="--set", fix="its settings are " + ", ".join(accepted))

    def parameters(self) -> int:
        """How many numbers the model learns."""
        return num_parameters(self.family.weights(self.config))


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
    if fits and value > LARGEST:
        raise UsageError(f"{name}={value} is above {LARGEST}, the largest size", where="--set", fix=f"a smaller {name}")
    if isinstance(default, bool):
        wanted, fits = "true or false", isinstance(value, bool)
    elif isinstance(default, float):
        wanted, fits = "a finite number of zero or more", number and 0 <= value < math.inf
    elif isinstance(default, tuple):
        value = (value,) if whole else value
        wanted = "a list of positive integers, such as 3,4,6,3"
        fits = isinstance(value, tuple) and all(type(each) is int and 0 < each <= LARGEST for each in value)
    elif name.endswith("_dtype"):
        return dtype_named(name, value)
    elif isinstance(default, str):
        value = "none" if value is None else value  # a word of some settings, and how nothing is written
        wanted, fits = "text", isinstance(value, str)
    # Otherwise it is a count, or has no default: a length that follows from the model.
    if not fits:
        raise UsageError(
            f"the setting {name} is {wanted}, not {value!r}", where="--set", fix=f"its default is {default!r}"
        )
    return value


@functools.cache
def _keywords(function: Callable[..., ModelProgram]) -> dict[str, Any]:
    """Keywords that a function of a model's module takes, with their defaults: not to be changed."""
    parameters = inspect.signature(function).parameters
    return {name: each.default for name, each in parameters.items() if name not in ("config", "mesh")}
