"""Protobuf's wire format: keys `number << 3 | type`, numbers in groups of seven bits with the lowest first."""

from __future__ import annotations

from functools import cache

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10  # bytes of 64 bits
FieldValue = int | bytes


class WireError(ValueError):
    """Bytes that are no message; `at` is where."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


def varint(value: int) -> bytes:
    """A number, lowest seven bits first."""
    if value < 0x80:
        return bytes((value,))
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


@cache
def field_key(place: int, kind: int) -> bytes:
    """What stands in front of a field's value."""
    return varint(place << 3 | kind)


def number_field(place: int, value: int) -> bytes:
    """A field that holds a number; negative ones as two's complement."""
    return field_key(place, VARINT) + varint(value % (1 << 64))


def bytes_field(place: int, value: bytes) -> bytes:
    """A field that holds bytes: a text, a message, a list."""
    return field_key(place, BYTES) + varint(len(value)) + value


def text_field(place: int, value: str) -> bytes:
    """A field that holds a text."""
    return bytes_field(place, value.encode())


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends.

    Raises:
        WireError: It is cut off, or longer than 64 bits.
    """
    value = shift = 0
    begin = at
    while True:
        if at >= end:
            raise WireError("a number is cut off (truncated varint)", begin)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise WireError("a number is longer than 64 bits", begin)
            return value, at
        shift += 7
        if at - begin >= LONGEST_VARINT:
            raise WireError("a number is longer than 64 bits", begin)


def fields(data: bytes, at: int, end: int) -> list[tuple[int, int, FieldValue, int]]:
    """(number, wire type, value, where the value begins) of every field of a message in `data[at:end]`.

    Raises:
        WireError: These bytes are no message.
    """
    found: list[tuple[int, int, FieldValue, int]] = []
    while at < end:
        begin = at
        key, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at, end)
        kind, place = key & 7, key >> 3
        if not place:
            raise WireError("a field has number 0", begin)
        # Numbers of one byte, which most are, are read here.
        if kind == BYTES:
            length, at = (data[at], at + 1) if at < end and data[at] < 0x80 else read_varint(data, at, end)
            if at + length > end:
                raise WireError(f"{length} bytes of field {place} where {end - at} are left", begin)
            found.append((place, kind, data[at : at + length], at))
            at += length
        elif kind == VARINT:
            value, after = (data[at], at + 1) if at < end and data[at] < 0x80 else read_varint(data, at, end)
            found.append((place, kind, value, at))
            at = after
        elif kind in (FIXED64, FIXED32):
            width = 8 if kind == FIXED64 else 4
            if at + width > end:
                raise WireError(f"{width} bytes of field {place} where {end - at} are left", begin)
            found.append((place, kind, data[at : at + width], at))
            at += width
        else:
            raise WireError(f"field {place} has wire type {kind}, which there is none of", begin)
    return found
