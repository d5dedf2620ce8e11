"""What kind of value an option or an argument takes, refused with a sentence where it is another.

Values with one natural meaning are taken: settings as numbers, a mesh as text, paths for names of files, lists for tuples.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from meshcast.base.errors import UsageError, refuse_nul

_WORDS: dict[Any, str] = {
    str: "a text", int: "an integer", bool: "True or False", type(None): "None", Path: "a path",
    Mapping: "a dict", tuple: "a tuple",
}  # fmt: skip
_SETTINGS = (str, int, float, bool, type(None))


def checked(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """The value of an option, in the class that the rest relies on.

    Raises:
        UsageError: It is of another kind.
    """
    value = _natural(value, kinds)
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        raise _refusal(name, value, kinds)
    refuse_nul(value, where=name)
    if isinstance(value, Mapping):
        _check_names(name, value)
    if isinstance(value, tuple) and not all(isinstance(each, str) for each in value):
        raise UsageError(f"{name} is a tuple of texts, not {value!r}", where=name)
    return value


def read_counts(name: str, value: Any) -> Mapping[str, int]:
    """A dict of integers.

    Raises:
        UsageError: It is of another kind.
    """
    counts: Mapping[str, int] = checked(name, value, (Mapping,))
    _check_counts(name, counts)
    return counts


def read_mesh(name: str, value: Any) -> Mapping[str, int] | None:
    """Sizes of a mesh's axes: from a text, a `Mesh`, or a dict of them.

    Raises:
        UsageError: It is of another kind.
    """
    from meshcast.base.mesh import Mesh  # NumPy is behind it: the command line's help does without

    if isinstance(value, (str, Mesh)):
        value = (value if isinstance(value, Mesh) else Mesh.parse(value)).sizes
    found: Mapping[str, int] | None = checked(name, value, (Mapping, type(None)))
    if found is not None:
        _check_counts(name, found)
    return found


def read_settings(name: str, value: Any) -> Mapping[str, str]:
    """Settings of a model as the command line has them: texts by name.

    Raises:
        UsageError: It is of another kind.
    """
    return {key: _setting(key, each) for key, each in checked(name, value, (Mapping,)).items()}


def _natural(value: Any, kinds: tuple[Any, ...]) -> Any:
    """The value in the class that the option takes, where it can mean but one thing."""
    if isinstance(value, Path) and Path not in kinds and str in kinds:
        return str(value)
    if isinstance(value, list) and tuple in kinds:
        return tuple(value)
    if isinstance(value, Integral) and not isinstance(value, bool) and int in kinds:
        return int(value)  # NumPy's too
    return value


def _check_names(name: str, value: Mapping[Any, Any]) -> None:
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{name} has a key {key!r} that is no text", where=name, fix="name it by a text")


def _check_counts(name: str, value: Mapping[str, Any]) -> None:
    for key, each in value.items():
        if isinstance(each, bool) or not isinstance(each, Integral):
            raise UsageError(f"{name}[{key!r}] is an integer, not {each!r}", where=name, fix=f"such as {{{key!r}: 8}}")


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
