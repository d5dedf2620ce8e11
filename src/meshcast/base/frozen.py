"""Frozen dataclasses that are made and copied as quickly as others.

A frozen class refuses plain assignments, so that the `__init__` which `dataclass` writes sets every field through
`object.__setattr__`, a call each: 2 us for nine fields, of which a long program makes 100,000. What is made here is first of a
class with the same slots that refuses nothing, and is given its own class last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def made_quickly(cls: type[T]) -> type[T]:
    """Class decorator: the same frozen dataclass with an `__init__` that takes half of the time or less.

    Args:
        cls: A frozen dataclass with slots, without fields that a factory makes.
    """
    own = _fields(cls)
    given = {f"_{each.name}": each.default for each in own if each.default is not MISSING}
    asked = [each for each in own if each.init]
    told = {each.name: f"{each.name}=_{each.name}" if f"_{each.name}" in given else each.name for each in asked}
    positional = [told[each.name] for each in asked if not each.kw_only]
    keywords = [told[each.name] for each in asked if each.kw_only]
    signature = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    lines = ["_set(self, '__class__', _draft)"]
    lines += [f"self.{each.name} = {each.name if each.init else f'_{each.name}'}" for each in own]
    lines += ["self.__class__ = _cls", *(["self.__post_init__()"] if hasattr(cls, "__post_init__") else [])]
    made = _function(f"__init__({signature})", lines, _scope(cls) | given)
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


def copier(cls: type[T], *changed: str) -> Callable[..., T]:
    """A function of an object and new values, in order, that gives another object with the same fields but for these.

    It is a `dataclasses.replace` that looks at no field's name and does not call `__init__`.

    Args:
        cls: A frozen dataclass with slots.
        changed: The fields that have new values.
    """
    values = [(each.name, each.name if each.name in changed else f"self.{each.name}") for each in _fields(cls)]
    lines = ["made = _new(_draft)", *(f"made.{name} = {value}" for name, value in values)]
    found: Callable[..., T] = _function(
        f"copied({', '.join(('self', *changed))})", [*lines, "made.__class__ = _cls", "return made"], _scope(cls)
    )
    return found


def _fields(cls: type[Any]) -> tuple[Field[Any], ...]:
    own: tuple[Field[Any], ...] = fields(cls)
    if "__slots__" not in vars(cls) or any(each.default_factory is not MISSING for each in own):
        raise TypeError(f"{cls.__name__} is not made of plain fields in slots")
    return own


def _scope(cls: type[Any]) -> dict[str, Any]:
    """Names that generated code uses; `_draft` is a class with the same slots that may be assigned to."""
    free = {"__slots__": vars(cls)["__slots__"], "__setattr__": object.__setattr__}  # a base may be frozen, too
    draft = type(cls.__name__, cls.__bases__, free)
    return {"_set": object.__setattr__, "_new": object.__new__, "_draft": draft, "_cls": cls}


def _function(head: str, lines: list[str], scope: dict[str, Any]) -> Any:
    exec(f"def {head}:\n " + "\n ".join(lines), scope)
    return scope[head.partition("(")[0]]
