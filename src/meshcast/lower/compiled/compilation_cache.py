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
from meshcast.lower.compiled.compiler_facts import CompiledMemory, CompilerRun
from meshcast.programs import Program

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
    program: Program,
    compile_it: Callable[[], dict[str, Any]],
    *,
    holds: Callable[[Mapping[str, Any]], bool] = lambda entry: True,
) -> tuple[dict[str, Any], bool]:
    """The entry of a compilation, with the seconds that it took, and whether it was kept from an earlier one.

    Args:
        folder: The compiler's part of the cache.
        made_from: Everything besides the program that shapes the result: target, versions, flags.
        program: What is compiled, with the names of its ops (`jit(step)/rematted_computation/dot`), which compilers hand on and
            readers go by. Where in whose files ops were written shapes nothing: the same program, captured by another script or
            in another folder, finds what is kept. Entries of earlier releases, which went by that too, are still found.
        compile_it: Makes the entry, JSON's types alone.
        holds: Whether an entry that was kept still answers what is asked for.
    """
    key = entry_key(made_from, _told(program))
    for each in (key, entry_key(made_from, program.bytecode)):
        kept_before = read(folder, each)
        if kept_before is not None and holds(kept_before):
            return kept_before, True
    started = time.perf_counter()
    entry = compile_it()
    entry["seconds"] = time.perf_counter() - started
    write(folder, key, entry)
    return entry, False


def entry_key(made_from: Mapping[str, Any], told: bytes) -> str:
    """What an entry is kept under: the hash of the program, as told, and of everything besides it."""
    return hashlib.sha256(json.dumps([_FORMAT, made_from], sort_keys=True).encode() + b"\0" + told).hexdigest()


def _told(program: Program) -> bytes:
    """The program's text, which has no debug locations, and the names in them; nothing more without any."""
    text, names = program.text.encode(), program.names
    return text + b"\0" + json.dumps(names).encode() if names else text


def compilation(entry: Mapping[str, Any], version: str, *, kept_before: bool) -> Compilation:
    """The compilation of an entry that holds one."""
    sizes = {part: int(entry[part]) for part in ("arguments", "outputs", "temporaries", "aliased")}
    by = CompilerRun(release=version, seconds=entry.get("seconds"), kept=kept_before)
    return Compilation(hlo=entry["hlo"], memory=CompiledMemory(**sizes), by=by)


def path_of(folder: str, key: str) -> Path:
    """Where the entry of a key is kept."""
    return cache_folder(folder) / key[:2] / f"{key}.json.gz"


def read(folder: str, key: str) -> dict[str, Any] | None:
    """The entry of a key; None where there is none that can be read."""
    found = kept_as(path_of(folder, key), lambda data: json.loads(gzip.decompress(data)))
    return found if isinstance(found, dict) and found.get("key") == key else None


def write(folder: str, key: str, entry: Mapping[str, Any]) -> None:
    """Keeps an entry."""
    keep(path_of(folder, key), gzip.compress(json.dumps({**entry, "key": key}).encode(), compresslevel=3))


def first_sentence(message: str) -> str:
    """A compiler's message in one line, a long one cut: XLA prints whole instructions.

    Where the first line says a status and no more (`UNIMPLEMENTED:`), the next one that says something joins it.
    """
    lines = [each.strip() for each in message.splitlines() if each.strip()] or [""]
    line = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return line if len(line) <= _LONGEST_SENTENCE else line[:_LONGEST_SENTENCE] + " ..."
