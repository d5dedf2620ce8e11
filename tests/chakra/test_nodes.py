"""Chakra traces: bytes by hand, and read back with a reader of the wire format that knows no schema."""

from __future__ import annotations

import struct

from meshcast.chakra import CollectiveCode, Node, NodeType, trace_bytes
from meshcast.chakra.schema import VERSIONS


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """(field number, value) of one message."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = data[at : at + 8], at + 8
        else:
            assert key & 7 == 2
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        found.append((key >> 3, value))
    return found


def messages(data: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        found.append(data[at : at + length])
        at += length
    return found


def test_a_collective_by_hand() -> None:
    node = Node(number=1, name="ar", kind=NodeType.COLLECTIVE, attributes={"comm_size": 300})
    version = VERSIONS["current"].encode()
    attribute = b"\x0a\x09comm_size" + b"\x48\xac\x02"  # int64_val is field 9, 300 two groups of seven bits
    message = b"\x08\x01" + b"\x12\x02ar" + b"\x18\x07" + b"\x52" + bytes([len(attribute)]) + attribute
    header = b"\x0a" + bytes([len(version)]) + version
    assert trace_bytes([node]) == bytes([len(header)]) + header + bytes([len(message)]) + message


def test_every_kind_of_field_is_where_readers_look() -> None:
    node = Node(
        number=2**40, name="n", kind=NodeType.SEND, control_deps=(1, 300), data_deps=(2,), duration_us=17,
        attributes={
            "is_cpu_op": True, "num_ops": -1, "tensor_size": 2**33, "comm_tag": 5, "share": 0.25, "pg_name": "1",
            "involved_dim": (True, False), "comm_type": int(CollectiveCode.ALL_TO_ALL),
        },
    )  # fmt: skip
    header, message = messages(trace_bytes([node]))
    assert fields(header) == [(1, VERSIONS["current"].encode())]
    found = fields(message)
    assert found[:6] == [(1, 2**40), (2, b"n"), (3, 5), (4, b"\x01\xac\x02"), (5, b"\x02"), (7, 17)]
    attributes = {}
    for number, value in found[6:]:
        assert number == 10
        assert isinstance(value, bytes)
        (_, name), attribute = fields(value)
        assert isinstance(name, bytes)
        attributes[name.decode()] = attribute
    assert attributes == {
        "is_cpu_op": (27, 1), "num_ops": (9, 2**64 - 1), "tensor_size": (13, 2**33), "comm_tag": (7, 5),
        "share": (3, struct.pack("<d", 0.25)), "pg_name": (29, b"1"), "involved_dim": (28, b"\x0a\x02\x01\x00"),
        "comm_type": (9, 6),
    }  # fmt: skip
