"""The outline of MLIR bytecode, read without parsing it: how much of a file is ops, how much constants.

Layout: magic, version, producer (a C string), then sections: an id (high bit: aligned), a length, an alignment and
padding where aligned, the content. Integers are prefix varints: trailing zeros of the first byte count further bytes.
"""

from __future__ import annotations

MAGIC = b"ML\xefR"
_OPS_SECTION = 4
_PADDING = 0xCB


def size_of_ops(data: bytes) -> int:
    """Bytes in the section that holds the ops; 0 where the outline is broken (the parser will say how)."""
    try:
        return _find_ops(data)
    except IndexError:
        return 0


def _find_ops(data: bytes) -> int:
    _, at = _varint(data, len(MAGIC))
    at = data.find(b"\0", at) + 1
    while 0 < at < len(data):
        section = data[at]
        length, at = _varint(data, at + 1)
        if section & 0x80:
            _, at = _varint(data, at)
            while data[at] == _PADDING:
                at += 1
        if section & 0x7F == _OPS_SECTION:
            return length
        at += length
    return 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at an offset, and the offset behind it."""
    first = data[at]
    if first == 0:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    count = (first & -first).bit_length()
    return int.from_bytes(data[at : at + count], "little") >> count, at + count
