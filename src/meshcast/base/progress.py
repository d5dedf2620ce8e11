"""What a long piece of work says about how far it is; whoever waits for it listens, by default nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from meshcast.base.units import format_time


class Said(str):
    """How far the work is, in words.

    Attributes:
        share: Of it that is done, where that is counted.
    """

    share: float | None = None


T = TypeVar("T")
Listener = Callable[[Said], None]
_MINUTE_S, _HOUR_S = 60.0, 3600.0
ENOUGH_S = 2.0  # of work before anybody says how long the rest takes: the first steps load what the others find


@dataclass(slots=True)
class _Reached:
    """The share of all work that was told last."""

    share: float = 0.0


class _Heard(NamedTuple):
    """Who listens since when, and which piece of the work speaks: its words, where it begins, and its share of the whole."""

    listener: Listener
    since: float
    reached: _Reached
    words: tuple[str, ...] = ()
    begins: float = 0.0
    share: float = 1.0


_heard: ContextVar[_Heard | None] = ContextVar("heard", default=None)


def tell(
    text: str,
    *,
    done: float | None = None,
    total: float | None = None,
    left_s: float | None = None,
    least: bool = False,
) -> None:
    """Says how far the work is; inside a piece of a larger work (`piece`), how far that is with it.

    Args:
        text: In words.
        done: How many of `total` equal pieces are done: then it is also said how long the rest takes at this pace.
        total: How many there are.
        left_s: How long the rest takes, where somebody knows better than by the pace; it is not told of a piece.
        least: Whether it takes longer than that, nobody knows by how much.
    """
    heard = _heard.get()
    if heard is None:
        return
    counted = done is not None and bool(total)
    if done is not None and total:
        share = heard.begins + heard.share * done / total
    elif heard.words:  # what counts nothing is said of where the piece has come to, and not of its beginning
        share = min(max(heard.begins, heard.reached.share), heard.begins + heard.share)
    else:
        share = 0.0
    if counted or heard.words:
        heard.reached.share = share
    text = ": ".join((*heard.words, text))
    taken = time.monotonic() - heard.since
    least = least and left_s is not None and not heard.words
    if left_s is None or heard.words:
        left_s = taken * (1 - share) / share if 0 < share < 1 else None
    if left_s is not None and taken > ENOUGH_S:
        text += f", {'at least' if least else 'about'} {format_wait(left_s)} left"
    said = Said(text)
    said.share = share if counted or heard.words else None
    heard.listener(said)


def format_wait(seconds: float) -> str:
    """How long somebody waits, in two digits: "40 s", "12 min", "3.5 h"."""
    if seconds >= 2 * _HOUR_S:
        return f"{seconds / _HOUR_S:.2g} h"
    return f"{seconds / _MINUTE_S:.2g} min" if seconds >= 3 * _MINUTE_S else format_time(float(f"{seconds:.2g}"))


@contextmanager
def piece(text: str, *, done: int, total: int) -> Iterator[None]:
    """Says that one of `total` equal pieces is under way behind `done` others; what is told inside is told of that piece."""
    tell(text, done=done, total=total)
    heard = _heard.get()
    if heard is None:
        yield
        return
    share = heard.share / total
    token = _heard.set(heard._replace(words=(*heard.words, text), begins=heard.begins + done * share, share=share))
    try:
        yield
    finally:
        _heard.reset(token)


@contextmanager
def aside(text: str) -> Iterator[None]:
    """Says that something is under way whose share of the work nobody counted; what is told inside does not move the whole."""
    tell(text)
    heard = _heard.get()
    if heard is None:
        yield
        return
    token = _heard.set(heard._replace(words=(*heard.words, text), begins=heard.reached.share, share=0.0))
    try:
        yield
    finally:
        _heard.reset(token)


def told_each(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items, with word of how many have passed: `3 of 16 ranks written`."""
    for number, item in enumerate(items):
        tell(f"{number:,} of {total:,} {what}", done=number, total=total)
        yield item


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Lets a function hear what work inside of the block says."""
    token = _heard.set(_Heard(listener, time.monotonic(), _Reached()))
    try:
        yield
    finally:
        _heard.reset(token)


@contextmanager
def unheard() -> Iterator[None]:
    """Lets nobody hear what work inside of the block says: whoever has it done counts it by itself."""
    token = _heard.set(None)
    try:
        yield
    finally:
        _heard.reset(token)
