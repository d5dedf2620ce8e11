"""A line on stderr where a person waits for longer than a second: compiling takes up to some ten."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from meshcast.progress import listening

AFTER_S = 1.0


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
