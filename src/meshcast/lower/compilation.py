"""What a real compiler made of a program, kept on disk by content in the user's cache folder.

An entry is a gzipped JSON object under the hash of everything that made it; what cannot be read (damaged, of another
version) counts as absent.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import cache_folder, keep, kept_as
from meshcast.lower.kernel import CompiledMemory

_FORMAT = 2  # of an entry in the cache
_LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Optimised, scheduled HLO text of one device's program, and its memory."""

    hlo: str
    memory: CompiledMemory
    version: str


def compiled_once(
    folder: str, made_from: Mapping[str, Any], data: bytes, compile_it: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The entry of a compilation: from the cache, or made now and kept.

    Args:
        folder: The compiler's part of the cache.
        made_from: Everything besides the program that shapes the result: target, versions, flags.
        data: The program.
        compile_it: Makes the entry, JSON's types alone.
    """
    said = json.dumps([_FORMAT, made_from], sort_keys=True)
    key = hashlib.sha256(said.encode() + b"\0" + data).hexdigest()
    entry = read(folder, key)
    if entry is None:
        entry = compile_it()
        write(folder, key, entry)
    return entry


def compilation(entry: Mapping[str, Any], version: str) -> Compilation:
    """The compilation of an entry that holds one."""
    sizes = {part: int(entry[part]) for part in ("arguments", "outputs", "temporaries", "aliased")}
    return Compilation(hlo=entry["hlo"], memory=CompiledMemory(**sizes), version=version)


def read(folder: str, key: str) -> dict[str, Any] | None:
    """The entry of a key; None where there is none that can be read."""
    found = kept_as(_path(folder, key), lambda data: json.loads(gzip.decompress(data)))
    return found if isinstance(found, dict) and found.get("key") == key else None


def write(folder: str, key: str, entry: Mapping[str, Any]) -> None:
    """Keeps an entry."""
    keep(_path(folder, key), gzip.compress(json.dumps({**entry, "key": key}).encode(), compresslevel=3))


def first_sentence(message: str) -> str:
    """A compiler's message in one line, a long one cut: XLA prints whole instructions."""
    line = (message.strip().splitlines() or [""])[0]
    return line if len(line) <= _LONGEST_SENTENCE else line[:_LONGEST_SENTENCE] + " ..."


def _path(folder: str, key: str) -> Path:
    return cache_folder(folder) / key[:2] / f"{key}.json.gz"
