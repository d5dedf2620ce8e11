"""Files that are there whole or not at all: written beside their place, and put there when they are done."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from meshcast.errors import UsageError

COMPRESSION = 6  # of gzip: beyond, files hardly shrink


def check_place(path: Path) -> None:
    """Refuses a place that no file can be written to, before the work is done.

    Raises:
        UsageError: The folder is not there, or the name is a folder's.
    """
    if str(path) == "-":
        raise UsageError("traces are not written to the standard output", where="-o -", fix="name a file")
    if not path.parent.is_dir():
        raise UsageError(
            f"there is no folder {path.parent}",
            where=f"-o {path}",
            fix=f"make it (mkdir -p {path.parent}), or name another",
        )
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
