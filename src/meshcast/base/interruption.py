"""Signals that end a command: Ctrl-C, SIGTERM, a terminal that is closed.

Python runs a signal's handler wherever the main thread happens to be. What it raises there is lost inside a destructor, becomes
another error inside the definition of a class, and ends the process (abort, or worse) where native code has called back and
takes no exceptions: all of them were seen while traces were written. So `meshcast trace` does not unwind: the handler itself
takes away what is half done, says so in one line, and leaves (`ending_at_once`). All other commands get it raised, those that
write files as well: some print what they have so far on Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OF_SIGNAL = 128  # shells report a program that signal N ended as 128 + N
AGAIN_S = 0.02  # after which a signal whose exception was lost is sent again
_IMPORTER = "<frozen importlib._bootstrap>"  # where its frames say they are
Action = Callable[[], object]

_half_done: list[Action] = []  # what takes away what is half done; the last first


@dataclass(slots=True)
class _Command:
    """The one that runs.

    Attributes:
        done: Whether what it leaves behind is in place.
    """

    done: bool = False


_command = _Command()


class InterruptedCommand(KeyboardInterrupt):
    """A signal asks the command to end.

    Attributes:
        number: The number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code of a command that the signal ended."""
        return OF_SIGNAL + self.number

    def __str__(self) -> str:
        return "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"

    def say(self, *, as_json: bool) -> None:
        """A line for people, and with `--json` an object; past Python's buffers, which the handler may have interrupted."""
        if as_json:
            error = {"error": {"code": "interrupted", "message": str(self), "where": None, "fix": None}}
            _write(sys.__stdout__, json.dumps(error) + "\n")
        clear = "\r\x1b[K" if sys.__stderr__ is not None and sys.__stderr__.isatty() else ""
        _write(sys.__stderr__, f"{clear}meshcast: {self}\n")


def _write(stream: Any, text: str) -> None:
    with contextlib.suppress(OSError, AttributeError, ValueError):  # nobody listens any more
        os.write(stream.fileno(), text.encode())


def listen() -> None:
    """From now on signals that end the command raise, those alone that whoever started it does not want ignored."""
    _handle(_raise)
    atexit.register(_ignore)
    printed = sys.unraisablehook

    def lost(found: Any) -> None:
        if isinstance(found.exc_value, InterruptedCommand):
            again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), found.exc_value.number))
            again.daemon = True
            again.start()
        else:
            printed(found)

    sys.unraisablehook = lost


@contextmanager
def ending_at_once(*, as_json: bool) -> Iterator[None]:
    """Inside, a signal takes away what is half done and ends the process, until files are in place (`Hold.too_late`)."""
    if signal.getsignal(signal.SIGINT) is not _raise and signal.getsignal(signal.SIGTERM) is not _raise:
        yield  # the command is called from Python, which has its own way with signals
        return
    _command.done = False
    _handle(partial(_end, as_json))
    yield
    _ignore()


@contextmanager
def taken_away(action: Action) -> Iterator[None]:
    """Inside, a signal that ends the process calls this first: it takes away what is half done."""
    _half_done.append(action)
    try:
        yield
    finally:
        _half_done.remove(action)


def at_end(action: Action) -> None:
    """A signal that ends the process calls this first, from now on."""
    _half_done.append(action)


def _handle(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, handler)


def _ignore() -> None:
    """The command is done. At exit this runs last of all: behind it Python lets signals kill, with exit codes of their own."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> None:
    if _importing(
        frame
    ):  # nothing is worth unwinding for, and native modules abort where they call back while they load
        _end("--json" in sys.argv, number, frame)
    raise InterruptedCommand(number)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTER:
            return True
        frame = frame.f_back
    return False


def _end(as_json: bool, number: int, frame: FrameType | None) -> None:
    if _command.done:
        return
    _ignore()
    for action in reversed(_half_done):
        with contextlib.suppress(Exception):  # the others are taken away all the same
            action()
    interrupted = InterruptedCommand(number)
    interrupted.say(as_json=as_json)
    os._exit(interrupted.exit_code)


@dataclass(slots=True)
class Hold:
    """Signals that are put off.

    Attributes:
        number: The last one that came.
    """

    number: int | None = None

    def check(self) -> None:
        """Lets a signal that has come take effect here.

        Raises:
            InterruptedCommand: One has.
        """
        if self.number is not None:
            number, self.number = self.number, None
            raise InterruptedCommand(number)

    def too_late(self) -> None:
        """Forgets a signal: what it would have ended is done, and so is a command that ends at once."""
        self.number = None
        _command.done = True


@contextmanager
def held() -> Iterator[Hold]:
    """Puts signals off while files are moved or taken away; one that has come takes effect at the end.

    Where something has failed inside, that is what is raised. Threads other than the main one are never interrupted.
    """
    hold = Hold()
    if threading.current_thread() is not threading.main_thread():
        yield hold
        return

    def noted(number: int, frame: FrameType | None) -> None:
        hold.number = number

    with _handled_by(noted) as python:
        yield hold
    if hold.number is not None:
        python[hold.number](hold.number, None)


@contextmanager
def raising() -> Iterator[None]:
    """Inside, signals raise, also where they would end the process: for what waits for other processes, and ends them then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled_by(_raise):
        yield


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], None],
) -> Iterator[dict[int, Callable[[int, FrameType | None], Any]]]:
    before = {int(number): signal.getsignal(number) for number in ENDING}
    python = {number: found for number, found in before.items() if callable(found)}
    try:
        for number in python:
            signal.signal(number, handler)
        yield python
    finally:
        for number, found in python.items():
            signal.signal(number, found)
