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
from typing import TYPE_CHECKING, TypeVar

from meshcast.base import Said, listening

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
AFTER_S = 1.0
BAR, SHORT_BAR = 24, 10  # characters; the short one in terminals of fewer columns than
ROOMY = 100
COUNT = re.compile(r"[\d,]+ of [\d,]+")
STAGE = re.compile(r"stage [\d,]+ of [\d,]+")  # of one program: less is told by it than by any other count
LEFT = re.compile(r", (about|at least) [^,:]* left$")
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

    What counts stays longest (`3 of 12`), and how long it takes: other words make room for both, then the bar does.
    """
    words, left = (said or ""), ""
    if said is not None and (found := LEFT.search(said)):
        words, left = said[: found.start()], found[0]
    end = f"{left} ({seconds:.0f} s)"
    width = _columns() - 1  # a longer one would wrap, and could not be taken back
    share = None if said is None else said.share
    bar = "" if share is None else f" {_bar(share, BAR if width >= ROOMY - 1 else SHORT_BAR)}"
    short = "" if share is None else f" {_bar(share, SHORT_BAR)}"
    forms = _shorter_forms(what, (bar, short), words)
    line = next((form for form in forms if len(form) + len(end) <= width), forms[-1])
    if len(line) + len(end) > width:
        line = f"{line[: max(width - 3 - len(end), 0)]}..."
    return f"{line}{end}"[: max(width, 0)]


def _shorter_forms(what: str, bars: tuple[str, str], words: str) -> list[str]:
    """The line in ever fewer characters, the whole one first: less is told around the count, then there is no bar."""
    bar, short = bars
    forms = [(bar, words)]
    parts = words.split(": ")
    counts = [(number, found[0]) for number, part in enumerate(parts) if (found := COUNT.search(part))]
    if counts:
        last, count = next((each for each in reversed(counts) if not STAGE.match(parts[each[0]])), counts[-1])
        forms += [(bar, ": ".join(parts[: last + 1])), (bar, parts[last])]
        clause = next(each for each in parts[last].split(", ") if count in each)  # with what is counted
        forms += [(bar, clause), (short, clause), (short, count), ("", count)]
    return [f"{what}{drawn}{f': {text}' if text else ''}" for drawn, text in forms]


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
    with drawn_bar(what) as bar:
        yield from bar.track(items, total=total)


def drawn_bar(what: str, *more: str) -> Progress:
    """A bar on stderr: how many of how many are done, and how long the others take at this pace; it is taken back at the end.

    Args:
        what: What is counted.
        *more: What else stands behind it, as rich's formats of a task.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    heads = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True), TextColumn("left"))
    return Progress(*heads, *map(TextColumn, more), console=Console(stderr=True), transient=True)
