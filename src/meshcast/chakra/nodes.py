"""The protobuf messages of a Chakra trace, written without protobuf.

A file is a `GlobalMetadata` and then `Node`s, each after its length. Field numbers are those of `et_def.proto` of MLCommons
Chakra (package ChakraProtoMsg, proto3), the wire format is protobuf's: a key `number << 3 | type` before every value,
numbers in groups of seven bits, the lowest first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

VERSION = "0.0.4"  # of the schema, which no reader known to us looks at
Attribute = bool | int | float | str | tuple[bool, ...]

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_DOUBLE, _INT32, _INT64, _UINT64, _BOOL, _BOOL_LIST, _STRING = 3, 7, 9, 13, 27, 28, 29
# Readers look for some attributes in one field alone: these are where ASTRA-sim looks. Other integers are int64.
_INTEGER_FIELDS = {
    "tensor_size": _UINT64, "comm_priority": _INT32, "comm_src": _INT32, "comm_dst": _INT32, "comm_tag": _INT32,
}  # fmt: skip


class NodeType(IntEnum):
    """What a node does."""

    METADATA = 1
    MEMORY_LOAD = 2
    MEMORY_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CollectiveCode(IntEnum):
    """The attribute `comm_type` of a collective."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a trace.

    Attributes:
        number: Unique in its file.
        control_deps: Nodes that must end before this one; so `data_deps`.
        duration_us: Whole microseconds: the format has no others.
        attributes: By their names in the format, e.g. `comm_type`, `comm_size`, `is_cpu_op`.
    """

    number: int
    name: str
    kind: NodeType
    control_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def trace_bytes(nodes: Iterable[Node]) -> bytes:
    """The file of one rank."""
    messages = [_text(1, VERSION), *map(_node, nodes)]
    return b"".join(_varint(len(message)) + message for message in messages)


def _node(node: Node) -> bytes:
    parts = [_number(1, node.number), _text(2, node.name), _number(3, node.kind)]
    parts += [
        _bytes(place, b"".join(map(_varint, deps)))
        for place, deps in ((4, node.control_deps), (5, node.data_deps))
        if deps
    ]
    if node.duration_us:
        parts.append(_number(7, node.duration_us))
    parts += [_bytes(10, _text(1, name) + _value(name, value)) for name, value in node.attributes.items()]
    return b"".join(parts)


def _value(name: str, value: Attribute) -> bytes:
    if isinstance(value, bool):
        return _number(_BOOL, value)
    if isinstance(value, int):
        return _number(_INTEGER_FIELDS.get(name, _INT64), value)
    if isinstance(value, float):
        return _varint(_DOUBLE << 3 | _FIXED64) + struct.pack("<d", value)
    if isinstance(value, str):
        return _text(_STRING, value)
    return _bytes(_BOOL_LIST, _bytes(1, bytes(value)))


def _number(place: int, value: int) -> bytes:
    return _varint(place << 3 | _VARINT) + _varint(value % (1 << 64))  # negative ones as two's complement


def _text(place: int, value: str) -> bytes:
    return _bytes(place, value.encode())


def _bytes(place: int, value: bytes) -> bytes:
    return _varint(place << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
