"""A line on stderr where a person waits for longer than a second: compiling takes up to some ten."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from meshcast.base import Said, listening

T = TypeVar("T")
AFTER_S = 1.0
BAR = 24  # characters
INTERRUPTED = 130  # as shells report a program that Ctrl-C ended


@contextmanager
def patience(what: str) -> Iterator[None]:
    """Says what is under way if it takes longer than a second: how far it is, as a bar where that is counted, and since when.

    It is taken back when the work is done, and said to terminals alone.
    """
    if not sys.stderr.isatty():
        yield
        return
    started, done, shown = time.monotonic(), threading.Event(), threading.Event()
    said: Said | None = None

    def show() -> None:
        sys.stderr.write(f"\r\x1b[K{progress_line(what, said, time.monotonic() - started)}")
        sys.stderr.flush()

    def tick() -> None:
        """Once a second: a line that stands still looks like work that does."""
        while not done.wait(AFTER_S):
            shown.set()
            show()

    def heard(text: Said) -> None:
        nonlocal said
        said = text
        if shown.is_set():
            show()

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        with listening(heard):
            yield
    finally:
        done.set()
        ticking.join()
        if shown.is_set():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def progress_line(what: str, said: Said | None, seconds: float) -> str:
    """One line of a terminal: what is under way, a bar where its share is known, in words how far it is, and since when."""
    bar = ""
    if said is not None and said.share is not None:
        full = round(BAR * min(1.0, said.share))
        bar = f" [{'=' * full}{' ' * (BAR - full)}] {said.share:.0%}"
    words, about, left = (said or "").rpartition(", about ")
    line = f"{what}{bar}{f': {words if about else left}' if said else ''}"
    end = f"{about}{left if about else ''} ({seconds:.0f} s)"
    width = _columns() - 1  # a longer one would wrap, and could not be taken back
    if len(line) + len(end) > width:  # how long it takes is what is read last: words make room for it
        line = f"{line[: max(width - 3 - len(end), 0)]}..."
    return f"{line}{end}"[: max(width, 0)]


def _columns() -> int:
    """Of the terminal that the line is written to, wherever the answer goes."""
    if "COLUMNS" not in os.environ:
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return shutil.get_terminal_size().columns


def counted(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items, counted on stderr as they pass where a person is watching."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True), transient=True)
