"""A line on stderr where a person waits for longer than a second: compiling takes up to some ten."""

from __future__ import annotations

import contextlib
import os
import re
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
BAR, SHORT_BAR = 24, 10  # characters; the short one where words need the room
COUNT = re.compile(r"[\d,]+ of [\d,]+")
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
    """One line of a terminal: what is under way, a bar where its share is known, in words how far it is, and since when.

    What counts stays longest (`3 of 12`), and how long it takes: the bar gets shorter, then words make room for both.
    """
    words, about, left = (said or "").rpartition(", about ")
    end = f"{about}{left if about else ''} ({seconds:.0f} s)"
    width = _columns() - 1  # a longer one would wrap, and could not be taken back
    share = None if said is None else said.share
    forms = _shorter_forms(what, words if about else left, share)
    line = next((form for form in forms if len(form) + len(end) <= width), forms[-1])
    if len(line) + len(end) > width:
        line = f"{line[: max(width - 3 - len(end), 0)]}..."
    return f"{line}{end}"[: max(width, 0)]


def _shorter_forms(what: str, words: str, share: float | None) -> list[str]:
    """The line in ever fewer characters, the whole one first."""
    long, short = (f" {_bar(share, size)}" if share is not None else "" for size in (BAR, SHORT_BAR))
    told = [words]
    parts = words.split(": ")
    counting = [number for number, part in enumerate(parts) if COUNT.search(part)]
    if counting:
        last = counting[-1]
        found = COUNT.search(parts[last])
        told += [": ".join(parts[: last + 1]), parts[last], found[0] if found else ""]
    heads = [f"{what}{long}", *([f"{what}{short}"] * len(told)), *([what] if counting else [])]
    return [f"{head}{f': {text}' if text else ''}" for head, text in zip(heads, [words, *told, told[-1]], strict=False)]


def _bar(share: float, size: int) -> str:
    full = round(size * min(1.0, share))
    return f"[{'=' * full}{' ' * (size - full)}] {share:.0%}"


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
