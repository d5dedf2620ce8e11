"""Whether a program can be read without bringing the process down: tried in a child first.

Damaged bytecode aborts MLIR's reader, or leaves its memory in disorder for a later abort: the child reads it and writes
what it has read anew, and nobody else's bytecode is read here. XLA's reader of HLO text ends the process at what it does
not expect (a parameter numbered 7 of one), so the child turns HLO into StableHLO and hands that over. MLIR text is read
here at once, but for the two kinds of it that were seen to crash: brackets nested in thousands, which overflow the stack,
and debug names that are no UTF-8.
"""

from __future__ import annotations

import contextlib
import re
from typing import Literal

import numpy as np

from meshcast.base import ChildCrashedError, ChildFailedError, InputError
from meshcast.programs import bytecode
from meshcast.programs.reading_ahead import READER

TIMEOUT_S = 120.0
# Deeper text overflows the stack of 8 MiB from 3,000 brackets on (regions; types and locations from 30,000); programs have 20.
DEEP = 500
Form = Literal["bytecode", "portable", "text", "hlo"]
_READERS: dict[Form, str] = {
    "bytecode": "MLIR's bytecode reader",
    "portable": "MLIR's bytecode reader",
    "text": "MLIR's parser",
    "hlo": "XLA's HLO parser",
}
_DAMAGED = "the file is damaged: copy it again"
_FIX: dict[Form, str] = {
    "bytecode": _DAMAGED,
    "portable": _DAMAGED,
    "text": _DAMAGED,
    "hlo": "check that the text is whole, as XLA printed it",
}
_OPENING, _CLOSING = b"([{<", b")]}>"
_STEPS = bytes.maketrans(_OPENING + _CLOSING, b"\x01" * 4 + b"\xff" * 4)  # 1 and, as a signed byte, -1
_NO_BRACKETS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_HIGH_BYTE = re.compile(r"\\[89A-Fa-f][0-9A-Fa-f]")  # a byte above ASCII, as MLIR text spells it in strings


def clean_bytecode(data: bytes, *, portable: bool, where: str) -> bytes:
    """The bytecode of the same module, written by our own jaxlib.

    Raises:
        MeshcastError: It cannot be read; the reader crashed, or did not end.
    """
    form: Form = "portable" if portable else "bytecode"
    return _made(form, data, where, names=not bytecode.strings_are_text(data))


def probe_text(text: str, *, where: str) -> None:
    """Returns when the parser survives a text; what else is wrong with it, reading it here will say. Most needs no child.

    Raises:
        InputError: The parser crashed, or did not end.
    """
    names = "\\" in text and _HIGH_BYTE.search(text) is not None
    if names or nesting(text) > DEEP:
        with contextlib.suppress(ChildFailedError):
            _asked("text", text.encode(), where, names=names)


def hlo_to_stablehlo(text: str, *, where: str) -> str:
    """The StableHLO text of HLO text, made in the child.

    Raises:
        MeshcastError: It cannot be read, or has no StableHLO form.
    """
    return _made("hlo", text.encode(), where).decode()


def nesting(text: str) -> int:
    """How deep brackets stand in each other; those in strings count too, as this only chooses who reads first."""
    brackets = text.encode().replace(b"->", b"").translate(_STEPS, _NO_BRACKETS)
    return int(np.cumsum(np.frombuffer(brackets, dtype=np.int8), dtype=np.int64).max(initial=0))


def _made(form: Form, data: bytes, where: str, *, names: bool = False) -> bytes:
    """What the child has made of a program, or its error."""
    try:
        return _asked(form, data, where, names=names)
    except ChildFailedError as failed:
        if failed.error is not None:
            raise failed.error from None
        raise InputError(f"{_READERS[form]} fails on it: {failed}", where=where, fix=_FIX[form]) from None


def _asked(form: Form, data: bytes, where: str, *, names: bool = False) -> bytes:
    try:
        return READER.request({"form": form, "where": where, "names": names}, data, timeout_s=TIMEOUT_S)
    except ChildCrashedError as error:
        raise InputError(f"{_READERS[form]} crashed on it ({error})", where=where, fix=_FIX[form]) from None
