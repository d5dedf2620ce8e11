"""What a real compiler made of a program, kept on disk by content in the user's cache folder.

An entry is a gzipped JSON object under the hash of everything that made it; what cannot be read (damaged, of another
version) counts as absent.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.base import cache_folder, keep, kept_as
from meshcast.lower.compiler_facts import CompiledMemory, CompilerRun

_FORMAT = 2  # of an entry in the cache
_LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Optimised, scheduled HLO text of one device's program, and its memory."""

    hlo: str
    memory: CompiledMemory
    by: CompilerRun = field(compare=False)


def compiled_once(
    folder: str,
    made_from: Mapping[str, Any],
    data: bytes,
    compile_it: Callable[[], dict[str, Any]],
    *,
    holds: Callable[[Mapping[str, Any]], bool] = lambda entry: True,
) -> tuple[dict[str, Any], bool]:
    """The entry of a compilation, with the seconds that it took, and whether it was kept from an earlier one.

    Args:
        folder: The compiler's part of the cache.
        made_from: Everything besides the program that shapes the result: target, versions, flags.
        data: The program.
        compile_it: Makes the entry, JSON's types alone.
        holds: Whether an entry that was kept still answers what is asked for.
    """
    said = json.dumps([_FORMAT, made_from], sort_keys=True)
    key = hashlib.sha256(said.encode() + b"\0" + data).hexdigest()
    kept_before = read(folder, key)
    if kept_before is not None and holds(kept_before):
        return kept_before, True
    started = time.perf_counter()
    entry = compile_it()
    entry["seconds"] = time.perf_counter() - started
    write(folder, key, entry)
    return entry, False


def compilation(entry: Mapping[str, Any], version: str, *, kept_before: bool) -> Compilation:
    """The compilation of an entry that holds one."""
    sizes = {part: int(entry[part]) for part in ("arguments", "outputs", "temporaries", "aliased")}
    by = CompilerRun(release=version, seconds=entry.get("seconds"), kept=kept_before)
    return Compilation(hlo=entry["hlo"], memory=CompiledMemory(**sizes), by=by)


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
