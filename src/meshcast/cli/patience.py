"""A line on stderr where a person waits for longer than a second: compiling takes up to some ten."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from meshcast.base import listening

T = TypeVar("T")
AFTER_S = 1.0
INTERRUPTED = 130  # as shells report a program that Ctrl-C ended


@contextmanager
def patience(what: str) -> Iterator[None]:
    """Says what is under way, and how far, if it takes longer than a second; takes it back when done; terminals only."""
    if not sys.stderr.isatty():
        yield
        return
    shown = threading.Event()
    far = ""

    def show() -> None:
        shown.set()
        sys.stderr.write(f"\r\x1b[K{what}{far} ...")
        sys.stderr.flush()

    def heard(text: str) -> None:
        nonlocal far
        far = f": {text}"
        if shown.is_set():
            show()

    timer = threading.Timer(AFTER_S, show)
    timer.daemon = True
    timer.start()
    try:
        with listening(heard):
            yield
    finally:
        timer.cancel()
        if shown.is_set():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def counted(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items, counted on stderr as they pass where a person is watching."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True), transient=True)
