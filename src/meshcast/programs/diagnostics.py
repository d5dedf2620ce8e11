"""What MLIR's parser says, as errors for people: which file and line, which op or type, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from meshcast.base import InputError, UnsupportedError

_OP = re.compile(
    r"(?:unregistered operation|unknown op|custom op) '([^'\s]+)'|'([\w$]+\.[\w$.]+)' (?:op is unregistered|is unknown)"
)
_FOREIGN_OP = re.compile(r"operation being parsed with an unregistered dialect|dialect '([^']*)' is unknown")
_FOREIGN_VALUE = re.compile(r'[`]?([!#])"([^"]*)"<"?([\w.]*).*? (type|attribute) created with unregistered dialect')
_VERSION = re.compile(
    r"bytecode version \d|version \S+ is (?:newer|older)|(?:newer|older) (?:than|dialect)|unsupported version"
    r"|'vhlo\.\w+_v\d+'"
)
_PLACE = re.compile(r'(?:"-"|<stdin>):(\d+):(\d+)')
_PRODUCER = re.compile(rb"ML\xefR.(StableHLO_v[\d.]+|MLIR[\w.]+)")
_LONGEST = 300  # characters of MLIR's own words: some messages quote whole ops
_NATIVE = "export the program as StableHLO (jax.jit(f).lower(...).as_text() or jax.export)"
_COMPLETE = "check that the file is complete StableHLO"


@contextmanager
def collected(context: Any) -> Iterator[list[str]]:
    """The context's error messages, kept off stderr, where the native reader would print them."""
    messages: list[str] = []

    def keep(diagnostic: Any) -> bool:
        try:
            messages.append(f"{diagnostic.location}: error: {diagnostic.message}")
        except RuntimeError:  # damaged bytecode quotes bytes that are no text
            messages.append("error: a message that is not text")
        return True

    handler = context.attach_diagnostic_handler(keep)
    try:
        yield messages
    finally:
        handler.detach()


def parse_error(message: str, *, where: str, source: str | bytes = "") -> InputError | UnsupportedError:
    """The user's error for a message of MLIR's parser about `source`."""
    place = _PLACE.search(message)
    line = int(place[1]) if place else 0
    if place and line:
        where = f"{where}:{place[1]}:{place[2]}"
    reason = _first_error(message)
    written = _PRODUCER.match(source) if isinstance(source, bytes) else None
    if _VERSION.search(reason) or (written and _is_newer(written[1].decode())):
        origin = f"it was written as {written[1].decode()}, " if written else ""
        return InputError(
            f"the program's dialect version cannot be read by this jaxlib: {origin}"
            f"{stablehlo.get_current_version()} is the newest StableHLO here ({reason})",
            where=where,
            fix="export it for an older target version, or install a newer jaxlib",
        )
    if isinstance(source, str) and line and _is_cut_off(line, source):
        return InputError(f"the text ends in the middle: {reason}", where=where, fix="it is truncated: copy it again")
    return _unknown_name(message, reason, where, _source_line(source, line)) or InputError(
        f"not a valid MLIR module: {reason}", where=where, fix=_COMPLETE
    )


def _unknown_name(message: str, reason: str, where: str, line: str) -> InputError | UnsupportedError | None:
    """The error for an op, a type or an attribute of which jaxlib has never heard; None for any other message."""
    value = _FOREIGN_VALUE.search(message)
    if value:
        sigil, dialect, name, kind = value.groups()
        if dialect == "quant":
            return UnsupportedError(
                f"quantised types (!quant.{name}) cannot be read: jaxlib carries no quant dialect",
                where=where,
                fix="export the program with its storage type (i8, f8E4M3FN) and explicit scales",
            )
        return UnsupportedError(f"no reader knows the {kind} {sigil}{dialect}.{name}", where=where, fix=_NATIVE)
    op = _OP.search(message)
    if op:
        name = op[1] or op[2]
        if "." not in name:  # prose, Python, ...: the first word of a text that is no MLIR
            return InputError(f"not a valid MLIR module: {name!r} is no op", where=where, fix=_COMPLETE)
        return UnsupportedError(f"no reader knows the op '{name}' ({reason})", where=where, fix=_NATIVE)
    foreign = _FOREIGN_OP.search(message)
    if foreign:
        quoted = re.search(r'"([\w$]+\.[\w$.]+)"\s*\(', line)
        name = f"the op '{quoted[1]}'" if quoted else f"ops of the dialect '{foreign[1] or 'named here'}'"
        return UnsupportedError(f"no reader knows {name}", where=where, fix=_NATIVE)
    return None


def _first_error(message: str) -> str:
    lines = [line.strip(" -") for line in message.splitlines() if "error:" in line] or message.splitlines()
    return re.sub(r'^.*?error:\s*("-":\d+:\d+:)?\s*', "", lines[0] if lines else message).strip()[:_LONGEST]


def _is_newer(producer: str) -> bool:
    """True for a portable artifact of a later StableHLO than jaxlib's; those are read as far as their ops are known."""
    version = re.fullmatch(r"StableHLO_v(\d+)\.(\d+)\.(\d+)", producer)
    current = str(stablehlo.get_current_version()).split(".")
    return version is not None and [int(part) for part in version.groups()] > [int(part) for part in current]


def _is_cut_off(line: int, source: str) -> bool:
    return line > source.rstrip().count("\n") and source.count("{") > source.count("}")


def _source_line(source: str | bytes, line: int) -> str:
    if not isinstance(source, str) or not line:
        return ""
    lines = source.split("\n", line)
    return lines[line - 1] if len(lines) >= line else ""
