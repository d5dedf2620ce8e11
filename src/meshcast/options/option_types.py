"""What kind of value an option takes: told by its annotation, refused with a sentence where it is another.

Values with one natural meaning are taken: settings as numbers, a mesh as text, paths for names of files, lists for tuples.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from meshcast.base import Mesh, UsageError, refuse_nul

_WORDS: dict[Any, str] = {
    str: "a text", int: "an integer", bool: "True or False", type(None): "None", Path: "a path",
    Mapping: "a dict", tuple: "a tuple",
}  # fmt: skip
_SETTINGS = (str, int, float, bool, type(None))


def kinds_of(options: type) -> dict[str, tuple[Any, ...]]:
    """The classes that each field of a dataclass takes."""
    return {name: tuple(dict.fromkeys(_classes(hint))) for name, hint in typing.get_type_hints(options).items()}


def _classes(hint: Any) -> list[Any]:
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [each for part in get_args(hint) for each in _classes(part)]
    if origin is Literal:
        return [str]
    return [origin or hint]


def checked(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """The value of an option, in the class that the rest relies on.

    Raises:
        UsageError: It is of another kind.
    """
    value = _natural(name, value, kinds)
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        raise _refusal(name, value, kinds)
    refuse_nul(value, where=name)
    if isinstance(value, Mapping):
        return _checked_mapping(name, value)
    if isinstance(value, tuple) and not all(isinstance(each, str) for each in value):
        raise UsageError(f"{name} is a tuple of texts, not {value!r}", where=name)
    return value


def _natural(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """The same in another class, where it can mean but one thing."""
    if isinstance(value, Path) and Path not in kinds and str in kinds:
        return str(value)
    if isinstance(value, list) and tuple in kinds:
        return tuple(value)
    if isinstance(value, Integral) and not isinstance(value, bool) and int in kinds:
        return int(value)  # NumPy's too
    if name == "mesh" and isinstance(value, (str, Mesh)):
        return (value if isinstance(value, Mesh) else Mesh.parse(value)).sizes
    return value


def _checked_mapping(name: str, value: Mapping[Any, Any]) -> Mapping[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{name} has a key {key!r} that is no text", where=name, fix="name it by a text")
    if name == "settings":
        return {key: _setting(key, each) for key, each in value.items()}
    for key, each in value.items():
        if isinstance(each, bool) or not isinstance(each, Integral):
            raise UsageError(f"{name}[{key!r}] is an integer, not {each!r}", where=name, fix=f"such as {{{key!r}: 8}}")
    return value


def _setting(key: str, value: Any) -> str:
    """A setting as the command line has it."""
    if isinstance(value, (tuple, list)) and all(isinstance(each, int) for each in value):
        return ",".join(map(str, value))
    if not isinstance(value, (*_SETTINGS, Integral)):
        raise UsageError(
            f"settings[{key!r}] is a text, a number, a truth or a list of integers, not {value!r}", where="settings"
        )
    return str(value)


def _refusal(name: str, value: Any, kinds: tuple[Any, ...]) -> UsageError:
    expected = " or ".join(_WORDS.get(kind, f"a {kind.__name__}") for kind in kinds)
    return UsageError(f"{name} is {expected}, not {value!r} (a value of type {type(value).__name__})", where=name)
