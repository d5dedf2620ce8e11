"""The three standard streams, which whoever starts the command may have closed, or filled.

Imported before signals are listened to: nothing here imports what the interpreter has not loaded already.
"""

from __future__ import annotations

import io
import os
import sys

# A `typing.TYPE_CHECKING` without `typing`, which takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    from _typeshed import ReadableBuffer

_NAMES = ("stdin", "stdout", "stderr")  # by their file descriptors


class _Unheard(io.FileIO):
    """A file that takes what it cannot write: notes that find no place change nothing of the command's outcome."""

    def write(self, data: ReadableBuffer, /) -> int:
        """The number of bytes that are done with, written or not."""
        try:
            return super().write(data) or 0
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Gives the command all three streams: closed ones are the null device, and errors of the standard error are none.

    Python has None in place of a stream that is closed, and the next file that is opened would get its descriptor: what is
    printed there by native code and by child processes would land in that file.
    """
    for number, name in enumerate(_NAMES):
        if getattr(sys, name) is None:
            mode, flags = ("w", os.O_WRONLY) if number else ("r", os.O_RDONLY)
            null = os.open(os.devnull, flags)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            _set(name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    raw = _Unheard(sys.stderr.fileno(), "w", closefd=False)
    _set(
        "stderr",
        io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=sys.stderr.encoding,
            errors="backslashreplace",
            line_buffering=True,
            write_through=True,
        ),
    )


def _set(name: str, stream: io.TextIOBase | IO[str]) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)  # what is written past whoever has put something else in its place
