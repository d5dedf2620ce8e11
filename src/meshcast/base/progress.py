"""What a long piece of work says about how far it is; whoever waits for it listens, by default nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from meshcast.base.units import format_time


class Said(str):
    """How far the work is, in words.

    Attributes:
        share: Of it that is done, where that is counted.
    """

    share: float | None = None


Listener = Callable[[Said], None]
ENOUGH_S = 2.0  # of work before anybody says how long the rest takes: the first steps load what the others find

# Who listens, and since when.
_listener: ContextVar[tuple[Listener, float] | None] = ContextVar("listener", default=None)


def tell(text: str, *, done: int | None = None, total: int | None = None) -> None:
    """Says how far the work is.

    Args:
        text: In words.
        done: How many of `total` equal pieces are done: then it is also said how long the rest takes at this pace.
        total: How many there are.
    """
    listening_to = _listener.get()
    if listening_to is None:
        return
    listener, since = listening_to
    taken = time.monotonic() - since
    if done and total and done < total and taken > ENOUGH_S:
        text += f", about {format_time(float(f'{taken * (total - done) / done:.2g}'))} left"
    said = Said(text)
    said.share = done / total if done is not None and total else None
    listener(said)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Lets a function hear what work inside of the block says."""
    token = _listener.set((listener, time.monotonic()))
    try:
        yield
    finally:
        _listener.reset(token)
