"""The outline of MLIR bytecode, read without parsing it: how much of a file is ops, and whether its strings are text.

Layout: magic, version, producer (a C string), then sections: an id (high bit: aligned), a length, an alignment and
padding where aligned, the content. Integers are prefix varints: trailing zeros of the first byte count further bytes.
"""

from __future__ import annotations

from meshcast.programs.reading_ahead import BYTECODE

_STRINGS_SECTION = 0
_OPS_SECTION = 4
_PADDING = 0xCB


def size_of_ops(data: bytes) -> int:
    """Bytes in the section that holds the ops; 0 where the outline is broken (the parser will say how)."""
    begin, end = _section(data, _OPS_SECTION)
    return end - begin


def strings_are_text(data: bytes) -> bool:
    """Whether all strings (names, locations, attributes) are UTF-8; False where the outline is broken.

    The section holds their number, their lengths, and then themselves.
    """
    begin, end = _section(data, _STRINGS_SECTION)
    try:
        count, at = _varint(data, begin)
        for _ in range(count):
            _, at = _varint(data, at)
        data[at:end].decode()
    except (IndexError, UnicodeDecodeError):
        return False
    return end > begin


def _section(data: bytes, wanted: int) -> tuple[int, int]:
    """Where a section's content begins and ends; nowhere, (0, 0), in a broken outline."""
    try:
        return _found(data, wanted)
    except IndexError:
        return 0, 0


def _found(data: bytes, wanted: int) -> tuple[int, int]:
    _, at = _varint(data, len(BYTECODE))
    at = data.find(b"\0", at) + 1
    while 0 < at < len(data):
        section = data[at]
        length, at = _varint(data, at + 1)
        if section & 0x80:
            _, at = _varint(data, at)
            while data[at] == _PADDING:
                at += 1
        if section & 0x7F == wanted:
            return at, at + length
        at += length
    return 0, 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at an offset, and the offset behind it."""
    first = data[at]
    if first == 0:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    count = (first & -first).bit_length()
    return int.from_bytes(data[at : at + count], "little") >> count, at + count
