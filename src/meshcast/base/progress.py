"""What a long piece of work says about how far it is; whoever waits for it listens, by default nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(text: str) -> None:
    """Says how far the work is."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Lets a function hear what work inside of the block says."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
