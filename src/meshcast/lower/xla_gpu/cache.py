"""Compilations kept on disk by content, in the user's cache folder.

An entry is a gzipped JSON object under the hash of everything that made it; what cannot be read (damaged, of another
version) counts as absent.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from meshcast.cache import cache_folder, keep, kept

FOLDER = "xla-gpu"


def read(key: str) -> dict[str, Any] | None:
    """The entry of a key; None where there is none that can be read."""
    try:
        found = json.loads(gzip.decompress(kept(_path(key)) or b""))
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return found if isinstance(found, dict) and found.get("key") == key else None


def write(key: str, entry: dict[str, Any]) -> None:
    """Keeps an entry."""
    keep(_path(key), gzip.compress(json.dumps({**entry, "key": key}).encode(), compresslevel=3))


def _path(key: str) -> Path:
    return cache_folder(FOLDER) / key[:2] / f"{key}.json.gz"
