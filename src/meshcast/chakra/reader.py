"""Traces read back: every generation, every type of attribute; what is wrong is said with the node and the byte."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from meshcast.base import InputError, unreadable
from meshcast.chakra.first_release import read_flat_node
from meshcast.chakra.job_files import JSON_SUFFIX
from meshcast.chakra.nodes import Attribute, Node, NodeValues
from meshcast.chakra.schema import VALUE_OF_NUMBER, NodeType
from meshcast.chakra.wire import BYTES, FIXED32, FIXED64, VARINT, FieldValue, WireError, fields, read_varint

_STRUCTS = {
    "double": "<d", "float": "<f", "fixed32": "<I", "fixed64": "<Q", "sfixed32": "<i", "sfixed64": "<q",
}  # fmt: skip
_WIDTHS = {name: struct.calcsize(form) for name, form in _STRUCTS.items()}
FIRST_RELEASE = "0.0.1"
_VARINT = 16  # bytes that hold a message's length, and more
# Attributes that were read, by their bytes: most nodes of a trace repeat those of others.
_Known = dict[bytes, tuple[str, Attribute]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraTrace:
    """The trace of one rank.

    Attributes:
        version: The version of the schema, as the file says it; "" where it says nothing.
        metadata: Attributes that hold for all nodes.
        nodes: In the order of the file.
        offsets: Where each begins in the file, with its length.
        where: The file.
    """

    version: str = ""
    metadata: dict[str, Attribute] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    offsets: tuple[int, ...] = ()
    where: str = ""


def read_trace(path: Path) -> ChakraTrace:
    """The trace in a file.

    Raises:
        InputError: It cannot be read, or is no trace; the message names the node and the byte.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a name with a zero byte is a wrong value
        raise unreadable(path, error) from None
    if path.suffix == JSON_SUFFIX:
        from meshcast.chakra.json_form import trace_of_json  # it makes the type of this module

        return trace_of_json(data.decode(errors="replace"), where=str(path))
    return trace_of_bytes(data, where=str(path))


def read_metadata(path: Path) -> dict[str, Attribute]:
    """What a file says about all of its nodes, without reading those; nothing where it says nothing or cannot be read.

    Whether it is a trace is said by `read_trace`.
    """
    if path.suffix == JSON_SUFFIX:
        from meshcast.chakra.json_form import metadata_of_json  # it makes the type of this module

        return metadata_of_json(path)
    try:
        with path.open("rb") as file:
            data = file.read(_VARINT)
            if _is_first_release(data):
                return {}
            length, at = read_varint(data, 0, len(data))
            left = os.fstat(file.fileno()).st_size - len(data)  # what a length of nonsense exceeds
            data += file.read(max(0, min(at + length - len(data), left)))
            return _metadata(data, at, min(at + length, len(data)), {})[1]
    except (OSError, ValueError, WireError):
        return {}


def trace_of_bytes(data: bytes, *, where: str = "trace") -> ChakraTrace:
    """The trace that bytes hold; whether it can be run is `checked_trace`'s to say.

    Raises:
        InputError: They hold none.
    """
    if not data:
        raise InputError("is empty", where=where, fix="a trace begins with its metadata")
    version, metadata = "", dict[str, Attribute]()
    nodes: list[Node] = []
    offsets: list[int] = []
    flat = _is_first_release(data)
    known: _Known = {}
    begin = 0
    try:
        for index, (at, end) in enumerate(_messages(data)):
            if flat or index:
                nodes.append(read_flat_node(data, at, end) if flat else _node(data, at, end, known))
                offsets.append(begin)
            else:
                version, metadata = _metadata(data, at, end, known)
            begin = end
    except WireError as error:
        reading = f"node {len(nodes)} of the file, counted from 0," if flat or begin else "the metadata"
        raise InputError(
            f"byte {error.at}, in {reading} which begins at byte {begin}: {error}", where=where,
            fix="the file is cut off or no Chakra trace: export or convert it again",
        ) from None  # fmt: skip
    return ChakraTrace(
        version=FIRST_RELEASE if flat else version, metadata=metadata, nodes=tuple(nodes), offsets=tuple(offsets),
        where=where,
    )  # fmt: skip


def _is_first_release(data: bytes) -> bool:
    """Whether the first message is a node (its first field is a number) and no metadata (whose fields are texts)."""
    try:
        length, at = read_varint(data, 0, len(data))
    except WireError:
        return False
    return length > 0 and at < len(data) and data[at] == 0x08


def _messages(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(data):
        length, begin = read_varint(data, at, len(data))
        if begin + length > len(data):
            raise WireError(f"a message of {length} bytes where {len(data) - begin} are left", at)
        yield begin, begin + length
        at = begin + length


def _metadata(data: bytes, at: int, end: int, known: _Known) -> tuple[str, dict[str, Attribute]]:
    version, attributes = "", dict[str, Attribute]()
    for place, kind, value, begin in fields(data, at, end):
        if place == 1:
            version = _text(value, kind, begin)
        elif place == 2:
            name, attribute = _attribute(data, value, kind, begin, known)
            attributes[name] = attribute
    return version, attributes


def _node(data: bytes, at: int, end: int, known: _Known) -> Node:
    numbers = {1: 0, 3: 0, 6: 0, 7: 0}
    name, control, needed = "", list[int](), list[int]()
    said: dict[int, NodeValues] = {}
    attributes: dict[str, Attribute] = {}
    for place, kind, value, begin in fields(data, at, end):
        if place == 10:
            key, attribute = _attribute(data, value, kind, begin, known)
            if key in attributes and attributes[key] != attribute:
                raise WireError(f"attribute {key!r} of a node is {attributes[key]!r:.40} and {attribute!r:.40}", begin)
            attributes[key] = attribute
        elif place in numbers:
            if not isinstance(value, int):
                raise WireError(f"field {place} of a node holds no number", begin)
            numbers[place] = value
        elif place == 2:
            name = _text(value, kind, begin)
        elif place in (4, 5):
            (control if place == 4 else needed).extend(_packed(data, value, begin))
        elif place in (8, 9):
            texts = {number: _text(text, wire, start) for number, wire, text, start in _inner(data, value, kind, begin)}
            said[place] = NodeValues(values=texts.get(1, ""), shapes=texts.get(2, ""), types=texts.get(3, ""))
    of_type = whole("int32", numbers[3])
    if not 0 <= of_type <= max(NodeType):
        raise WireError(
            f"node {numbers[1]} ({name!r}) has type {of_type}, and types go from 0 to {max(NodeType):d}", at
        )
    return Node(
        number=numbers[1], name=name, kind=NodeType(of_type), control_deps=tuple(control), data_deps=tuple(needed),
        start_us=numbers[6], duration_us=numbers[7], inputs=said.get(8), outputs=said.get(9), attributes=attributes,
    )  # fmt: skip


def _inner(data: bytes, value: FieldValue, kind: int, begin: int) -> list[tuple[int, int, FieldValue, int]]:
    if kind != BYTES or not isinstance(value, bytes):
        raise WireError("a message is expected here", begin)
    return fields(data, begin, begin + len(value))


def _text(value: FieldValue, kind: int, begin: int) -> str:
    if kind != BYTES or not isinstance(value, bytes):
        raise WireError("a text is expected here", begin)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise WireError("a text is not UTF-8", begin + error.start) from None


def _packed(data: bytes, value: FieldValue, begin: int) -> list[int]:
    """A list of numbers, packed or one of its numbers alone."""
    if isinstance(value, int):
        return [value]
    found, at, end = [], begin, begin + len(value)
    while at < end:
        number, at = read_varint(data, at, end)
        found.append(number)
    return found


def _attribute(data: bytes, value: FieldValue, kind: int, begin: int, known: _Known) -> tuple[str, Attribute]:
    """An attribute's name and value; equal bytes are read once."""
    if kind == BYTES and isinstance(value, bytes):
        if value not in known:
            known[value] = _read_attribute(data, value, kind, begin)
        return known[value]
    return _read_attribute(data, value, kind, begin)


def _read_attribute(data: bytes, value: FieldValue, kind: int, begin: int) -> tuple[str, Attribute]:
    name, found = "", None
    for place, wire, inner, at in _inner(data, value, kind, begin):
        if place == 1:
            name = _text(inner, wire, at)
        elif place in VALUE_OF_NUMBER:
            value_type = VALUE_OF_NUMBER[place]
            if value_type.name.endswith("_list"):
                found = _list(data, value_type.name.removesuffix("_list"), inner, wire, at)
            else:
                found = _scalar(value_type.kind, inner, wire, at)
        elif place != 2:  # 2 is a text for people
            raise WireError(f"attribute {name!r} has a value of unknown type (field {place})", at)
    return name, False if found is None else found


def _scalar(kind: str, value: FieldValue, wire: int, at: int) -> bool | int | float | str | bytes:
    if kind == "string":
        return _text(value, wire, at)
    if kind == "bytes" and isinstance(value, bytes) and wire == BYTES:
        return value
    if kind in _STRUCTS and isinstance(value, bytes) and wire in (FIXED32, FIXED64) and len(value) == _WIDTHS[kind]:
        number: int | float = struct.unpack(_STRUCTS[kind], value)[0]
        return number
    if kind not in ("bytes", *_STRUCTS) and isinstance(value, int) and wire == VARINT:
        return whole(kind, value)
    raise WireError(f"a value of type {kind} has wire type {wire}", at)


def whole(kind: str, value: int) -> bool | int:
    """A number of 64 bits as its type has it."""
    if kind == "bool":
        return bool(value)
    if kind in ("sint32", "sint64"):
        return value >> 1 ^ -(value & 1)
    if kind in ("int32", "int64") and value >> 63:
        return value - (1 << 64)
    return value


def _list(data: bytes, kind: str, value: FieldValue, wire: int, at: int) -> Attribute:
    found: list[bool | int | float | str | bytes] = []
    for place, inner_wire, inner, begin in _inner(data, value, wire, at):
        if place != 1:
            raise WireError(f"a list has field {place}", begin)
        if inner_wire != BYTES or kind in ("string", "bytes"):
            found.append(_scalar(kind, inner, inner_wire, begin))
        elif kind in _STRUCTS and isinstance(inner, bytes):
            if len(inner) % _WIDTHS[kind]:
                raise WireError(f"a list of {kind} has {len(inner)} bytes", begin)
            found += [each[0] for each in struct.iter_unpack(_STRUCTS[kind], inner)]
        else:
            found += [whole(kind, each) for each in _packed(data, inner, begin)]
    return tuple(found)  # type: ignore[return-value]  # of one type each, as the schema has it
