"""Files that are there whole or not at all, and packed ones read.

They are written beside their place, and put there when they are done.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from meshcast.errors import InputError, UsageError
from meshcast.units import format_bytes

COMPRESSION = 6  # of gzip: beyond, files hardly shrink
GZIP_MAGIC = b"\x1f\x8b"
LARGEST_UNPACKED = 4 << 30  # bytes; what is larger does not stay in memory beside what is made of it


def check_place(path: Path) -> None:
    """Refuses a place that no file can be written to, before the work is done.

    Raises:
        UsageError: The folder is not there and cannot be made, or the name is a folder's.
    """
    if str(path) == "-":
        raise UsageError("traces are not written to the standard output", where="-o -", fix="name a file")
    there = next(folder for folder in path.absolute().parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        what = "is no folder" if not there.is_dir() else "cannot be written to"
        raise UsageError(f"{there} {what}", where=f"-o {path}", fix="choose another place with -o")
    if path.is_dir():
        raise UsageError("a folder of this name is there", where=f"-o {path}", fix="name a file")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, compressed if its name ends in `.gz`; nothing is left of it if that fails.

    Raises:
        UsageError: It cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as raw:
            if path.suffix == ".gz":
                # No name and no time inside: the same trace gives the same bytes.
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=COMPRESSION, mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield raw
        part.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror or error}", where=str(path), fix="choose another place with -o"
        ) from None
    finally:
        part.unlink(missing_ok=True)


def unpacked(content: bytes, *, where: str, largest: int = LARGEST_UNPACKED) -> bytes:
    """What a file holds, without gzip around it.

    Raises:
        InputError: It is cut off or damaged, or unpacks to more than `largest` bytes.
    """
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            found = packed.read(largest + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"gzip that is cut off or damaged: {error}", where=where, fix="copy it again") from None
    if len(found) > largest:
        raise InputError(
            f"unpacks to more than {format_bytes(largest)}", where=where, fix="record less: fewer steps, or one device"
        )
    return found
