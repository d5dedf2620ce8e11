"""The fields of one configuration, read with their kinds checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshcast.errors import InputError, UnsupportedError


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
            raise InputError(f"model_type {self.kind!r} needs the key {key!r}", where=self.where, fix=f"add {key}")
        return default

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of zero or more; an absent or null key is its default, or an error where it has none."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{key} is {value!r}, not a whole number", where=self.where)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number of zero or more."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise InputError(f"{key} is {value!r}, not a number", where=self.where)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{key} is {value!r}, neither true nor false", where=self.where)
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._get(key, None)
        if not isinstance(value, list) or not all(type(each) is int and each > 0 for each in value):
            raise InputError(f"{key} is {value!r}, not a list of positive whole numbers", where=self.where)
        return tuple(value)

    def word(self, key: str, default: str, known: Mapping[str, str]) -> str:
        """What a word stands for; one that is not known names a variant that is not modelled."""
        value = self._get(key, default)
        if value not in known:
            raise UnsupportedError(
                f"{key}={value!r} of {self.kind} is not modelled", where=self.where, fix="modelled: " + ", ".join(known)
            )
        return known[value]

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
            raise InputError(f"{key} is {value!r}, not an object", where=self.where)
        return Fields(values=value, kind=self.kind, where=self.where)
