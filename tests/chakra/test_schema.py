"""The schema as a table, as a `.proto` file and as protobuf's own classes: all say the same, and so do the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import chakra
from meshcast.chakra import GENERATIONS, Node, NodeType, NodeValues, trace_bytes, trace_of_bytes
from meshcast.chakra.schema import SCALARS, VALUE_OF_NUMBER, VERSIONS, proto_text
from tests.chakra.test_nodes import messages


def test_the_proto_file_is_what_the_table_says() -> None:
    assert (Path(chakra.__file__).parent / "et.proto").read_text() == proto_text()


def test_values_are_numbered_as_the_schema_has_them() -> None:
    assert len(SCALARS) == 15
    assert {n: f.name for n, f in VALUE_OF_NUMBER.items() if n in (3, 7, 9, 13, 27, 28, 29, 30, 32)} == {
        3: "double_val", 7: "int32_val", 9: "int64_val", 13: "uint64_val", 27: "bool_val", 28: "bool_list",
        29: "string_val", 30: "string_list", 32: "bytes_list",
    }  # fmt: skip


NODES = (
    Node(number=1, name="first", kind=NodeType.COMPUTE, duration_us=3, attributes={
        "is_cpu_op": False, "num_ops": 2**40, "tensor_size": 2**33, "duration_ns": 2718.28, "inputs": ("v1", "16"),
        "outputs": (),
    }),
    Node(number=300, name="reduced", kind=NodeType.COLLECTIVE, data_deps=(1,), control_deps=(1,), start_us=5,
         inputs=NodeValues(values="[1]", shapes="[[2]]", types="['Tensor']"), attributes={
        "comm_type": 0, "comm_size": 128, "pg_name": "12", "involved_dim": (True, False), "raw": b"\x00\xff",
        "ints": (1, -2), "shares": (0.5, 0.25),
    }),
)  # fmt: skip


@pytest.mark.parametrize("generation", GENERATIONS)
def test_protobuf_reads_and_writes_the_same_bytes(generation: str) -> None:
    pytest.importorskip("google.protobuf")
    from meshcast.chakra.messages import message_classes

    classes = message_classes()
    data = trace_bytes(NODES, generation, {"device": "h200"})  # type: ignore[arg-type]
    header, *nodes = messages(data)
    metadata = classes["GlobalMetadata"].FromString(header)
    assert metadata.version == VERSIONS[generation]  # type: ignore[index]
    assert metadata.attr[0].string_val == "h200"
    assert metadata.SerializeToString() == header
    for ours, raw in zip(NODES, nodes, strict=True):
        theirs = classes["Node"].FromString(raw)
        assert theirs.SerializeToString(deterministic=True) == raw
        assert (theirs.id, theirs.name, theirs.type) == (ours.number, ours.name, ours.kind)
        assert tuple(theirs.data_deps) == ours.data_deps
    assert trace_of_bytes(data).nodes == NODES
