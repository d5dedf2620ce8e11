"""A path becomes traces, one for each device: which profiler wrote it is told by what is in it."""

from __future__ import annotations

import codecs
from itertools import chain
from pathlib import Path

from meshcast.base import InputError, unpacked, unreadable
from meshcast.evidence.profiler.kineto import read_kineto
from meshcast.evidence.profiler.nsys import read_nsys
from meshcast.evidence.profiler.nsys_table import is_table
from meshcast.evidence.profiler.trace import MeasuredTrace
from meshcast.evidence.profiler.xplane import read_xplane

SQLITE = b"SQLite format 3\x00"
# What a folder is searched for, one kind after the other: JAX writes JSON beside its profile, which has less in it.
FOLDER_PATTERNS = (
    ("*.xplane.pb", "*.xplane.pb.gz"),
    ("*.trace.json", "*.trace.json.gz"),
    ("*.json", "*.json.gz"),
)
TAKEN = "JAX's .xplane.pb, torch.profiler's .json[.gz], a folder of either, or nsys stats --format csv (cuda_gpu_trace)"


def read_traces(path: Path) -> list[MeasuredTrace]:
    """Every device's trace in a file, or in the newest profile of a folder.

    Raises:
        InputError: There is no such file, it is empty, cut off, or none that we know.
    """
    if path.is_dir():
        return [trace for file in _profile_files(path) for trace in read_traces(file)]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    content = unpacked(content, where=str(path))
    if not content.strip():
        raise InputError("empty", where=str(path), fix=f"give {TAKEN}")
    return _read(content, str(path))


def _read(content: bytes, source: str) -> list[MeasuredTrace]:
    if content.startswith(SQLITE):
        raise InputError("Nsight's database", where=source, fix="nsys stats --report cuda_gpu_trace --format csv of it")
    # A profile is a protobuf message, whose first byte is the tag of a field: never a bracket, but maybe a line feed.
    if content[:1] in (b"{", b"["):
        return read_kineto(content, source)
    text = _text(content)
    if text is None:
        return read_xplane(content, source)
    if text.lstrip()[:1] in ("{", "["):
        return read_kineto(content, source)
    if is_table(text):
        return read_nsys(text, source)
    raise InputError("no trace that we know", where=source, fix=f"give {TAKEN}")


def _text(content: bytes) -> str | None:
    """The content where it is a text: a message has bytes that none has."""
    # PowerShell's `>` writes UTF-16, with a mark in front that no message begins with (its first byte would be a tag of 7 bits).
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if not wide and any(byte < 9 for byte in content[:4096]):
        return None
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        return None


def _profile_files(folder: Path) -> list[Path]:
    """The files of a folder's newest profile: JAX makes a folder a run, with a file for each host; PyTorch's are one a rank."""
    for patterns in FOLDER_PATTERNS:
        found = sorted(path for pattern in patterns for path in folder.rglob(pattern))
        if found:
            newest = max(found, key=lambda path: (path.parent.name, path.stat().st_mtime)).parent
            return [path for path in found if path.parent == newest]
    raise InputError(
        "no profile in this folder", where=str(folder), fix="a folder with one of " + ", ".join(chain(*FOLDER_PATTERNS))
    )
