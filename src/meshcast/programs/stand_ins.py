"""Attributes of others that are replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


@contextmanager
def standing_in(owner: Any, **attributes: Any) -> Iterator[None]:
    """While a program is traced: the owner, a class, a module or an object, has these attributes of its own.

    What it had not of its own, but from its class, is so again afterwards.
    """
    before = {name: vars(owner).get(name, _ABSENT) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
