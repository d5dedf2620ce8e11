"""The fields of one configuration, read with their kinds checked."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.base import InputError, UnsupportedError
from meshcast.zoo.builder import LARGEST

# What `transformers` computes for the names of its `ACT2FN`: "gelu" is the exact one, the others are approximated by tanh.
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "exact_gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
}


_CORRECT = "correct it, or take the model's published config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Values by key, what model they describe and where they stand."""

    values: Mapping[str, Any]
    kind: str
    where: str

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            others = (name for name in self.values if name != key)
            close = difflib.get_close_matches(key, others, n=1, cutoff=0.85)
            fix = f"add {key}; is {close[0]!r} meant to be it?" if close else f"add {key}"
            raise InputError(f"model_type {self.kind!r} needs the key {key!r}", where=self.where, fix=fix)
        return default

    def integer(self, key: str, default: int | None = None) -> int:
        """A size; an absent or null key is its default, or an error where it has none.

        It may be zero where that is its default: a part that may be left out.
        """
        value = self._get(key, default)
        least = 0 if default == 0 else 1
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise InputError(
                f"{key} is {value!r}, not a whole number from {least} to {LARGEST}", where=self.where, fix=_CORRECT
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number of zero or more."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise InputError(f"{key} is {value!r}, not a finite number of zero or more", where=self.where, fix=_CORRECT)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{key} is {value!r}, neither true nor false", where=self.where, fix=_CORRECT)
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._get(key, None)
        if not isinstance(value, list) or not all(type(each) is int and each > 0 for each in value):
            raise InputError(
                f"{key} is {value!r}, not a list of positive whole numbers", where=self.where, fix=_CORRECT
            )
        return tuple(value)

    def word(self, key: str, default: str, known: Mapping[str, str]) -> str:
        """What a word stands for; one that is not known names a variant that is not modelled."""
        value = self._get(key, default)
        if value not in known:
            raise UnsupportedError(
                f"{key}={value!r} of {self.kind} is not modelled", where=self.where, fix="modelled: " + ", ".join(known)
            )
        return known[value]

    def activation(self, key: str, default: str, modelled: Collection[str]) -> str:
        """The activation function that a word stands for, of those that a family has."""
        return self.word(key, default, {word: name for word, name in _ACTIVATIONS.items() if name in modelled})

    def require(self, key: str, wanted: Any, default: Any) -> None:
        """Refuses a variant that would be another program."""
        value = self.values.get(key)
        value = default if value is None else value
        if value != wanted:
            raise UnsupportedError(
                f"{key}={value!r} of {self.kind} is not modelled", where=self.where, fix=f"only {key}={wanted!r} is"
            )

    def inside(self, key: str) -> Fields:
        """The fields of a part, such as the language model of a multimodal one."""
        value = self._get(key, None)
        if not isinstance(value, dict):
            raise InputError(f"{key} is {value!r}, not an object", where=self.where, fix=_CORRECT)
        return Fields(values=value, kind=self.kind, where=self.where)

    def renamed(self, **names: str) -> Fields:
        """The configuration with keys under the names that are asked for, taken from older names where only those are there."""
        older = {key: self.values[name] for key, name in names.items() if self.values.get(name) is not None}
        return Fields(values={**older, **self.values}, kind=self.kind, where=self.where)

    def defaulted(self, **defaults: Any) -> Fields:
        """The configuration with defaults for keys that are absent or null."""
        stated = {key: value for key, value in self.values.items() if value is not None}
        return Fields(values=defaults | stated, kind=self.kind, where=self.where)

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words; none where the key is absent."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InputError(f"{key} is {value!r}, not a list of words", where=self.where, fix=_CORRECT)
        return tuple(value)
