"""`Node`: one node of a trace as a value, and the file of one rank as bytes.

A file is a `GlobalMetadata` and then `Node`s, each after its length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from meshcast.chakra.schema import NUMBER_OF_VALUE, VERSIONS, Generation, NodeType
from meshcast.chakra.wire import FIXED64, VARINT, bytes_field, field_key, number_field, text_field, varint

Attribute = bool | int | float | str | bytes | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
# Readers look for some attributes in one field alone: these are where ASTRA-sim looks. Other integers are int64.
_INTEGER_FIELDS = {
    "tensor_size": "uint64", "comm_priority": "int32", "comm_src": "int32", "comm_dst": "int32", "comm_tag": "int32",
}  # fmt: skip
_ATTRIBUTES = 10  # the field of a node that holds them


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeValues:
    """The tensors that a node of PyTorch's traces reads or writes, as JSON texts."""

    values: str = ""
    shapes: str = ""
    types: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a trace.

    Attributes:
        number: Unique in its file.
        control_deps: Nodes that must end before this one; so `data_deps`.
        start_us: Whole microseconds, as the format has them; so `duration_us`.
        inputs: What it reads, where the trace says so; so `outputs`.
        attributes: By their names in the format, e.g. `comm_type`, `comm_size`, `is_cpu_op`.
    """

    number: int
    name: str
    kind: NodeType
    control_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    inputs: NodeValues | None = None
    outputs: NodeValues | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def trace_bytes(
    nodes: Iterable[Node], generation: Generation = "current", metadata: Mapping[str, Attribute] | None = None
) -> bytes:
    """The file of one rank."""
    return b"".join(trace_messages(nodes, generation, metadata))


def trace_messages(
    nodes: Iterable[Node], generation: Generation = "current", metadata: Mapping[str, Attribute] | None = None
) -> Iterator[bytes]:
    """The file of one rank message by message, so that a long one need not be held."""
    yield metadata_bytes(generation, metadata or {})
    for node in nodes:
        said = [_values_bytes(8, node.inputs), _values_bytes(9, node.outputs)]
        tail = b"".join([*said, *(attribute_bytes(name, value) for name, value in node.attributes.items())])
        start = number_field(6, node.start_us) if node.start_us else b""
        duration = start + duration_bytes(node.duration_us)
        head = node_head(node.name, node.kind)
        yield node_bytes(node.number, head, node.control_deps, node.data_deps, duration, tail)


def metadata_bytes(generation: Generation, attributes: Mapping[str, Attribute]) -> bytes:
    """The first message of a file behind its length: the schema's version, and attributes that hold for all nodes."""
    said = [bytes_field(2, _attribute(name, value)) for name, value in attributes.items()]
    message = b"".join([text_field(1, VERSIONS[generation]), *said])
    return varint(len(message)) + message


@lru_cache(maxsize=1 << 12)  # traces have thousands of nodes of a name
def node_head(name: str, kind: NodeType) -> bytes:
    """The part of a node that says what it is."""
    return text_field(2, name) + number_field(3, kind)


def duration_bytes(microseconds: int) -> bytes:
    """The part of a node that says how long it takes."""
    return number_field(7, microseconds) if microseconds else b""


def attribute_bytes(name: str, value: Attribute) -> bytes:
    """One attribute as a part of a node."""
    return bytes_field(_ATTRIBUTES, _attribute(name, value))


def node_bytes(
    number: int, head: bytes, control: Iterable[int], data: Iterable[int], duration: bytes, tail: bytes
) -> bytes:
    """A node put together of its parts, after its length."""
    ordered = b"".join(map(varint, control))
    needed = b"".join(map(varint, data))
    message = b"".join(
        (
            b"\x08", varint(number), head,
            b"\x22" + varint(len(ordered)) + ordered if ordered else b"",
            b"\x2a" + varint(len(needed)) + needed if needed else b"",
            duration, tail,
        )
    )  # fmt: skip
    return varint(len(message)) + message


def _values_bytes(place: int, said: NodeValues | None) -> bytes:
    if said is None:
        return b""
    texts = ((1, said.values), (2, said.shapes), (3, said.types))
    return bytes_field(place, b"".join(text_field(number, text) for number, text in texts if text))


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        return _number_prefix(name, isinstance(value, bool)) + varint(value % (1 << 64))
    return text_field(1, name) + _value(name, value)


@lru_cache(maxsize=1 << 12)
def _number_prefix(name: str, is_bool: bool) -> bytes:
    """What stands in front of an attribute's number."""
    return text_field(1, name) + field_key(NUMBER_OF_VALUE[value_field(name, is_bool or 0)], VARINT)


def value_field(name: str, value: Attribute) -> str:
    """The field of the schema that holds an attribute's value, e.g. `int64_val`."""
    first = (value[0] if value else "") if isinstance(value, tuple) else value  # a list of nothing is one of texts
    kind = "string"
    if isinstance(first, bool):
        kind = "bool"
    elif isinstance(first, int):
        kind = "int64" if isinstance(value, tuple) else _INTEGER_FIELDS.get(name, "int64")
    elif isinstance(first, float):
        kind = "double"
    elif isinstance(first, bytes):
        kind = "bytes"
    return f"{kind}_list" if isinstance(value, tuple) else f"{kind}_val"


def _value(name: str, value: Attribute) -> bytes:
    """A value that is no plain number."""
    place = NUMBER_OF_VALUE[value_field(name, value)]
    if isinstance(value, float):
        return field_key(place, FIXED64) + struct.pack("<d", value)
    if isinstance(value, str):
        return text_field(place, value)
    if isinstance(value, bytes):
        return bytes_field(place, value)
    assert isinstance(value, tuple)
    first = value[0] if value else ""
    if isinstance(first, bool):
        return bytes_field(place, bytes_field(1, bytes(bytearray(map(bool, value)))))
    if isinstance(first, int):
        packed = b"".join(varint(int(each) % (1 << 64)) for each in value)
        return bytes_field(place, bytes_field(1, packed))
    if isinstance(first, float):
        packed = b"".join(struct.pack("<d", each) for each in value)
        return bytes_field(place, bytes_field(1, packed))
    return bytes_field(place, b"".join(text_field(1, str(each)) for each in value))
