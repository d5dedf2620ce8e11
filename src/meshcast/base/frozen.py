"""Frozen dataclasses that are made as quickly as others."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def made_quickly(cls: type[T]) -> type[T]:
    """Class decorator: the same frozen dataclass with an `__init__` that takes a third of the time.

    The one that `dataclass` writes sets every field through `object.__setattr__`, a call each, as the class refuses plain
    assignments: 2 us for nine fields, of which a long program makes 100,000. This one assigns while the object is of a
    class with the same fields that refuses nothing, and gives it its own class last.

    Args:
        cls: A frozen dataclass with slots; without fields that are made by a factory or left out of `__init__`, and
            without `__post_init__`.
    """
    own, names = fields(cls), [each.name for each in fields(cls)]  # type: ignore[arg-type]
    plain = all(each.init and each.default_factory is MISSING for each in own)
    if "__slots__" not in vars(cls) or hasattr(cls, "__post_init__") or not plain:
        raise TypeError(f"{cls.__name__} is not made of plain fields in slots")
    given = {f"_{each.name}": each.default for each in own if each.default is not MISSING}
    told = [f"{name}=_{name}" if f"_{name}" in given else name for name in names]
    positional = [text for text, each in zip(told, own, strict=True) if not each.kw_only]
    keywords = [text for text, each in zip(told, own, strict=True) if each.kw_only]
    signature = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    lines = ["_set(self, '__class__', _draft)", *(f"self.{name} = {name}" for name in names), "self.__class__ = _cls"]
    draft = type(cls.__name__, cls.__bases__, {"__slots__": tuple(names)})
    scope: dict[str, Any] = {"_set": object.__setattr__, "_draft": draft, "_cls": cls, **given}
    exec(f"def __init__({signature}):\n " + "\n ".join(lines), scope)
    made = scope["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls
