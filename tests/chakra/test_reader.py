"""Traces read back: what was written, whatever the type; what is malformed is said with its node and byte."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import InputError
from meshcast.chakra import (
    GENERATIONS,
    ChakraTrace,
    Node,
    NodeType,
    NodeValues,
    checked_trace,
    reader,
    trace_bytes,
    trace_of_bytes,
)
from meshcast.chakra.nodes import Attribute
from meshcast.chakra.wire import bytes_field, number_field, text_field, varint

WHOLE = st.integers(-(2**31), 2**31 - 1)
ATTRIBUTES: st.SearchStrategy[Attribute] = st.one_of(
    st.booleans(), WHOLE, st.floats(allow_nan=False), st.text(max_size=9), st.binary(max_size=9),
    st.lists(st.booleans(), min_size=1, max_size=4).map(tuple), st.lists(WHOLE, min_size=1, max_size=4).map(tuple),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=4).map(tuple),
    st.lists(st.text(max_size=5), max_size=4).map(tuple),
)  # fmt: skip
NODES = st.builds(
    Node, number=st.integers(0, 2**64 - 1), name=st.text(max_size=12), kind=st.sampled_from(NodeType),
    control_deps=st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple),
    data_deps=st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple), start_us=st.integers(0, 2**50),
    duration_us=st.integers(0, 2**50), inputs=st.none() | st.builds(NodeValues, values=st.text(max_size=5)),
    attributes=st.dictionaries(st.sampled_from(["a", "duration_ns", "comm_tag", "other"]), ATTRIBUTES),
)  # fmt: skip


@given(nodes=st.lists(NODES, max_size=4), generation=st.sampled_from(GENERATIONS))
def test_what_is_written_is_read(nodes: list[Node], generation: str) -> None:
    data = trace_bytes(nodes, generation, {"device": "x"})  # type: ignore[arg-type]
    found = trace_of_bytes(data)
    assert found.nodes == tuple(nodes)
    assert found.metadata == {"device": "x"}


@given(nodes=st.lists(NODES, min_size=1, max_size=3), data=st.data())
def test_any_cut_is_an_error_or_a_shorter_trace(nodes: list[Node], data: st.DataObject) -> None:
    whole = trace_bytes(nodes)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    try:
        found = trace_of_bytes(cut)
    except InputError:
        return
    assert len(found.nodes) < len(nodes)


@given(st.binary(max_size=60))
def test_noise_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        checked_trace(trace_of_bytes(data))


def message(*parts: bytes) -> bytes:
    joined = b"".join(parts)
    return varint(len(joined)) + joined


HEADER = message(text_field(1, "1.0.0"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (HEADER + b"\x04\x08\xff\xff", "byte 8, in node 0 of the file, counted from 0, which begins at byte 8: a message of 4"),
        (HEADER + b"\x02\x08\xff", "byte 10, in node 0 of the file, counted from 0, which begins at byte 8: a number is cut off"),
        (HEADER + message(number_field(1, 7), number_field(3, 9)), "node 7 ('') has type 9"),
        (HEADER + message(number_field(1, 7), bytes_field(10, text_field(1, "a") + number_field(77, 1))), "unknown type"),
        (HEADER + message(number_field(1, 7), b"\x13"), "wire type 3"),
        (HEADER + message(bytes_field(2, b"\xff\xfe")), "not UTF-8"),
        (message(number_field(1, 7)) [:1], "byte 0, in the metadata"),
    ],
)  # fmt: skip
def test_malformed_files_name_node_and_byte(data: bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        trace_of_bytes(data, where="x.et")
    assert said in raised.value.message
    assert raised.value.where == "x.et"


def node(number: int, *deps: int, control: tuple[int, ...] = ()) -> Node:
    return Node(number=number, name=f"n{number}", kind=NodeType.COMPUTE, data_deps=deps, control_deps=control)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node(1), node(1)], "node 1 'n1' (at byte 17) has the number of node 1 'n1' (at byte 8)"),
        ([node(1, 5)], "node 1 'n1' (at byte 8) waits for node 5 (data dependency), which is not in the file"),
        ([node(1, control=(5,))], "(control dependency)"),
        ([node(1, 1)], "node 1 'n1' (at byte 8) waits for itself"),
        ([node(9), node(1, 9, 3), node(2, 1), node(3, control=(2,))], "3 nodes wait for each other in a circle"),
    ],
)
def test_what_cannot_be_run(nodes: list[Node], said: str) -> None:
    with pytest.raises(InputError) as raised:
        checked_trace(trace_of_bytes(trace_bytes(nodes)))
    assert said in raised.value.message


def test_a_node_may_stand_before_what_it_waits_for() -> None:
    nodes = (node(2, 1), node(1))
    assert checked_trace(ChakraTrace(nodes=nodes)).nodes == nodes


def test_integers_of_every_type() -> None:
    """Fields 15 and 17 are zigzag, 19 to 25 of fixed width, 7 and 9 two's complement."""
    values = {
        "sint": varint(15 << 3) + varint(5), "long": varint(17 << 3) + varint(4), "minus": number_field(7, -3),
        "fixed": varint(19 << 3 | 5) + struct.pack("<I", 9), "wide": varint(25 << 3 | 1) + struct.pack("<q", -8),
        "float": varint(5 << 3 | 5) + struct.pack("<f", 0.5),
        "list": bytes_field(12, bytes_field(1, varint(300) + varint(1))), "loose": bytes_field(12, number_field(1, 4)),
    }  # fmt: skip
    parts = [bytes_field(10, text_field(1, name) + value) for name, value in values.items()]
    (found,) = trace_of_bytes(HEADER + message(number_field(1, 1), *parts)).nodes
    assert found.attributes == {
        "sint": -3, "long": 2, "minus": -3, "fixed": 9, "wide": -8, "float": 0.5, "list": (300, 1), "loose": (4,),
    }  # fmt: skip


def test_the_first_release_is_read() -> None:
    """One flat message a node, no metadata: STAGE's v0.0.1."""
    compute = message(
        number_field(1, 1), text_field(2, "mm"), number_field(3, 3), number_field(12, 64), number_field(6, 8)
    )
    reduce = message(
        number_field(1, 2), text_field(2, "ar"), number_field(3, 6), number_field(4, 1), number_field(13, 1),
        number_field(14, 1), number_field(15, 3), number_field(18, 4096),
    )  # fmt: skip
    found = checked_trace(trace_of_bytes(compute + reduce))
    assert found.version == "0.0.1"
    assert [each.kind for each in found.nodes] == [NodeType.COMPUTE, NodeType.COLLECTIVE]
    assert found.nodes[0].attributes == {"num_ops": 64, "tensor_size": 8}
    assert found.nodes[1].data_deps == (1,)
    assert found.nodes[1].attributes == {"comm_type": 0, "pg_name": "3", "comm_size": 4096, "involved_dim": (True,)}


def test_equal_attributes_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a trace repeat each other's attributes: what is read is the number of different ones."""
    read = []
    original = reader._read_attribute

    def counted(*args: Any) -> Any:
        read.append(args)
        return original(*args)

    monkeypatch.setattr(reader, "_read_attribute", counted)
    nodes = [
        Node(number=number, name="n", kind=NodeType.COMPUTE, attributes={"size": 7, "shape": (1, 2), "own": number % 2})
        for number in range(50)
    ]
    assert trace_of_bytes(trace_bytes(nodes)).nodes == tuple(nodes)
    assert len(read) < 3 + 4 + 3  # those of the metadata besides
