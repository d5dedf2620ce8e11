"""Programs from files: StableHLO text, bytecode, portable artifacts, jax.export artifacts, XLA HLO text; plain or gz.

The format is told by content, not by the file's ending: a wrong ending is the commonest mistake.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from meshcast.capture import mlir
from meshcast.capture.program import Program, from_module
from meshcast.errors import InputError
from meshcast.units import format_bytes

BYTECODE_MAGIC = b"ML\xefR"
SIZE_LIMIT_VARIABLE = "MESHCAST_MAX_MODULE_BYTES"
DEFAULT_SIZE_LIMIT = 128 * 2**20
_ENDINGS = (".gz", ".mlirbc", ".mlir", ".hlo", ".txt", ".stablehlo", ".bin", ".jaxexport", ".opt")


def size_limit() -> int:
    """Largest module (decompressed bytes) that is read without being asked twice."""
    return int(os.environ.get(SIZE_LIMIT_VARIABLE, DEFAULT_SIZE_LIMIT))


def program_name(path: Path) -> str:
    """The file's name without its format endings."""
    name = path.name
    while any(name.endswith(ending) and name != ending for ending in _ENDINGS):
        name = name[: -len(next(ending for ending in _ENDINGS if name.endswith(ending)))]
    return name


def read_program(path: str | Path, *, dims: Mapping[str, int] | None = None) -> Program:
    """The program in a file, whatever its format."""
    path = Path(path)
    data = read_bytes(path)
    return from_bytes(data, name=program_name(path), where=str(path), dims=dims)


def read_bytes(path: Path) -> bytes:
    """The file's content, decompressed, within the size limit."""
    limit = size_limit()
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), fix="check the path") from None
    except IsADirectoryError:
        raise InputError("is a folder, not a program", where=str(path), fix="name a .mlir, .mlirbc or .hlo file") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if data[:2] == b"\x1f\x8b":
        data = _decompress(path, limit)
    if len(data) > limit:
        raise InputError(
            f"the module is larger than {format_bytes(limit)} decompressed; most such files carry weights as constants",
            where=str(path),
            fix=f"pass weights as arguments, or raise the limit with {SIZE_LIMIT_VARIABLE}=<bytes>",
        )
    return data


def _decompress(path: Path, limit: int) -> bytes:
    try:
        with gzip.open(path, "rb") as file:
            return file.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the gzip stream is broken: {error}", where=str(path), fix="the file is truncated: copy it again") from None


def from_bytes(data: bytes, *, name: str, where: str, dims: Mapping[str, int] | None = None) -> Program:
    """The program in a byte string, its format told by content."""
    if not data.strip():
        raise InputError("the file is empty", where=where)
    digest = hashlib.sha256(data).hexdigest()
    if data[:4] == BYTECODE_MAGIC:
        portable = b"StableHLO_v" in data[:64]
        module = mlir.deserialize_portable(data, where=where) if portable else mlir.parse(data, where=where)
        return _finish(module, name=name, where=where, digest=digest, dims=dims)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _from_export(data, name=name, where=where, dims=dims)
    if "\0" in text[:4096]:
        return _from_export(data, name=name, where=where, dims=dims)
    if text.lstrip().startswith("HloModule"):
        from meshcast.capture import hlo_text

        text = hlo_text.to_stablehlo(text, where=where)
    return _finish(mlir.parse(text, where=where), name=name, where=where, digest=digest, dims=dims)


def _finish(module: object, *, name: str, where: str, digest: str, dims: Mapping[str, int] | None) -> Program:
    from meshcast.capture.dynamic_shapes import refine

    return from_module(refine(module, dims=dims or {}, where=where), name=name, source=where, sha256=digest)


def _from_export(data: bytes, *, name: str, where: str, dims: Mapping[str, int] | None) -> Program:
    """A serialised `jax.export.Exported`; anything else binary is refused."""
    from meshcast.capture.exported import from_serialized

    return from_serialized(data, name=name, where=where, dims=dims)
