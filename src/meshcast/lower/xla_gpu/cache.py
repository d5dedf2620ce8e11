"""Compilations kept on disk by content, in the user's cache folder.

An entry is a gzipped JSON object under the hash of everything that made it. It is written beside its place and moved
there, so that a reader never sees half of one; what cannot be read (damaged, of another version) counts as absent.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/meshcast/xla-gpu`, by default under `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "meshcast" / "xla-gpu"


def read(key: str) -> dict[str, Any] | None:
    """The entry of a key; None where there is none that can be read."""
    try:
        found = json.loads(gzip.decompress(_path(key).read_bytes()))
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return found if isinstance(found, dict) and found.get("key") == key else None


def write(key: str, entry: dict[str, Any]) -> None:
    """Keeps an entry; a folder that cannot be written to only costs the next run its time."""
    path = _path(key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(gzip.compress(json.dumps({**entry, "key": key}).encode(), compresslevel=3))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _path(key: str) -> Path:
    return cache_folder() / key[:2] / f"{key}.json.gz"
