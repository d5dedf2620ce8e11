"""What took long to make, kept on disk by content, in the user's cache folder.

A file is named after the hash of everything that made it. It is written beside its place and moved there, so that a
reader never sees half of one; a folder that cannot be written to only costs the next run its time.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from meshcast.base.interruption import held

T = TypeVar("T")
# What reading an entry comes to that was cut off, is no JSON or gzip, or was written by another version.
_DAMAGED = (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error)


def cache_folder(what: str) -> Path:
    """`$XDG_CACHE_HOME/meshcast/WHAT`, by default under `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "meshcast" / what


def kept(path: Path) -> bytes | None:
    """A file's bytes; None where there is none that can be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def kept_as(path: Path, read: Callable[[bytes], T]) -> T | None:
    """The value that `read` makes of a kept file's bytes; None where there is no such file, or a damaged one."""
    data = kept(path)
    try:
        return None if data is None else read(data)
    except _DAMAGED:
        return None


def keep(path: Path, data: bytes) -> None:
    """Writes a file as a whole, or not at all."""
    with contextlib.suppress(OSError), held():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
