"""Programs from files: StableHLO text, bytecode, portable artifacts, jax.export artifacts, XLA HLO text; plain or gz.

The format is told by content, not by the file's ending: a wrong ending is the commonest mistake.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from meshcast.base import GZIP_MAGIC, InputError, UsageError, format_bytes, unreadable
from meshcast.programs import bytecode, mlir
from meshcast.programs.constants import shortened
from meshcast.programs.probe import clean_bytecode, hlo_to_stablehlo, probe_text
from meshcast.programs.profiles import HEAD, refuse_profile
from meshcast.programs.program import Program, argument_names, from_module
from meshcast.programs.quantised import has_quantised_types, with_integers
from meshcast.programs.reading_ahead import BYTECODE

SIZE_LIMIT_VARIABLE = "MESHCAST_MAX_MODULE_BYTES"
# Some 500,000 ops: a quarter of a minute and 1.5 GB for the whole prediction.
DEFAULT_SIZE_LIMIT = 32 * 2**20
_TEXT_PER_BYTECODE = 4  # text is this many times as long as the ops in bytecode
_RAW_FACTOR = 16  # constants may take this many times what the rest may
_ENDINGS = (".gz", ".mlirbc", ".mlir", ".hlo", ".txt", ".stablehlo", ".bin", ".jaxexport", ".opt")


def size_limit() -> int:
    """Largest text, without the contents of large constants, that is parsed without being asked twice."""
    text = os.environ.get(SIZE_LIMIT_VARIABLE, "")
    if text and not text.isdecimal():
        raise UsageError(
            f"{text!r} is not a number of bytes", where=SIZE_LIMIT_VARIABLE, fix="write it in digits, such as 536870912"
        )
    return int(text or DEFAULT_SIZE_LIMIT)


def program_name(path: Path) -> str:
    """The file's name without its format endings."""
    name = path.name
    while any(name.endswith(ending) and name != ending for ending in _ENDINGS):
        name = name[: -len(next(ending for ending in _ENDINGS if name.endswith(ending)))]
    return name


def read_program(path: str | Path, *, dims: Mapping[str, int] | None = None) -> Program:
    """The program in a file, whatever its format."""
    path = Path(path)
    return from_bytes(read_bytes(path), name=program_name(path), where=str(path), dims=dims)


def read_bytes(path: Path) -> bytes:
    """The file's content as it is stored, up to what could still hold a program within the limit."""
    try:
        with path.open("rb") as file:
            return read_stream(file, where=str(path))
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), fix="check the path") from None
    except IsADirectoryError:
        raise InputError("is a folder, not a program", where=str(path), fix="name a file in it") from None
    except OSError as error:
        raise unreadable(path, error) from None


def read_stream(stream: BinaryIO | gzip.GzipFile, *, where: str) -> bytes:
    """The rest of a stream, up to the limit on the size of a program with its constants."""
    data = stream.read(_raw_limit() + 1)
    if len(data) > _raw_limit():
        raise InputError(
            f"the file is larger than {format_bytes(_raw_limit())}; most such files carry weights as constants",
            where=where,
            fix=f"pass weights as arguments, or raise the limit of the program with {SIZE_LIMIT_VARIABLE}=<bytes>",
        )
    return data


def from_bytes(data: bytes, *, name: str, where: str, dims: Mapping[str, int] | None = None) -> Program:
    """The program in a byte string, plain or gz, its format told by content."""
    if data[:2] == GZIP_MAGIC:
        data = _decompressed(data, where)
    if not data.strip():
        raise InputError("the file is empty", where=where, fix="write or copy the program again")
    refuse_profile(data, where=where)
    digest = hashlib.sha256(data).hexdigest()
    if data.startswith(BYTECODE):
        _check_size(bytecode.size_of_ops(data), size_limit() // _TEXT_PER_BYTECODE, where)
        portable = b"StableHLO_v" in data[:64]
        module = mlir.parse_module(clean_bytecode(data, portable=portable, where=where), where=where)
        return _finish(module, name=name, where=where, digest=digest, dims=dims)
    if b"\0" in data[:4096]:
        return _from_export(data, name=name, where=where, dims=dims)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _from_export(data, name=name, where=where, dims=dims)
    del data
    text = shortened(text)
    if len(text) > size_limit():
        text = shortened(text, keep=0)
    _check_size(len(text), size_limit(), where)
    local = False
    if text.lstrip().startswith("HloModule"):
        from meshcast.programs import hlo_text

        local = hlo_text.is_partitioned(text)
        text = hlo_to_stablehlo(text, where=where)
    notes: tuple[str, ...] = ()
    written = text
    if has_quantised_types(text):
        text, notes = with_integers(text, where=where)
    try:
        probe_text(text, where=where)
        module = mlir.parse_module(text, where=where)
    except InputError as error:
        raise InputError(error.message, where=_as_written(error.where, text, written), fix=error.fix) from error
    return replace(
        _finish(module, name=name, where=where, digest=digest, dims=dims, local=local, text=text), notes=notes
    )


def _as_written(place: str | None, read: str, written: str) -> str | None:
    """`FILE:LINE:COLUMN` of a text that was rewritten line by line: without the column where the line is another one."""
    found = re.fullmatch(r"(.*:(\d+)):\d+", place or "")
    if found is None or read == written:
        return place
    lines = [each.split("\n")[int(found[2]) - 1 : int(found[2])] for each in (read, written)]
    return place if lines[0] == lines[1] else found[1]


def _raw_limit() -> int:
    """Bytes that are read at all: weights in a text are shortened before the limit applies."""
    return _RAW_FACTOR * size_limit()


def _check_size(size: int, limit: int, where: str) -> None:
    if size > limit:
        raise InputError(
            f"the module is larger than {format_bytes(limit)}, the contents of large constants not counted",
            where=where,
            fix=f"roll repeated layers into a loop (jax.lax.scan), or raise {SIZE_LIMIT_VARIABLE}=<bytes>",
        )


def _decompressed(data: bytes, where: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            refuse_profile(file.read(HEAD), where=where)  # before all is read: traces are large
            file.seek(0)
            return read_stream(file, where=where)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"the gzip stream is broken: {error}", where=where, fix="the file is truncated: copy it again"
        ) from None


def _finish(
    module: Any,
    *,
    name: str,
    where: str,
    digest: str,
    dims: Mapping[str, int] | None,
    local: bool = False,
    text: str | None = None,
) -> Program:
    """The program around a parsed module; `local`: it is one device's already, whatever annotations are left on it."""
    from meshcast.programs.annotations import bring_over_shardings
    from meshcast.programs.dynamic_shapes import refine

    try:
        names = argument_names(module, where=where)
        module = refine(module, dims=dims or {}, where=where)
        if not local:
            bring_over_shardings(module, where=where)
        program = from_module(module, name=name, source=where, sha256=digest, names=names, text=text)
    except (ValueError, RuntimeError) as error:  # attributes that are not of the kind their name promises
        raise InputError(f"the module is malformed: {error}", where=where, fix="export it again") from None
    return replace(program, partitioned=True) if local else program


def _from_export(data: bytes, *, name: str, where: str, dims: Mapping[str, int] | None) -> Program:
    """A serialised `jax.export.Exported`; anything else binary is refused."""
    from meshcast.programs.exported import from_serialized

    return from_serialized(data, name=name, where=where, dims=dims)
