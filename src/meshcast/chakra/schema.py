"""The messages of a Chakra execution trace as data: field numbers, types and enums, from which all else here is made.

Numbers and names are those of MLCommons Chakra's schema (package ChakraProtoMsg). Its releases v0.0.4 and 1.0.0 have the same
messages; they differ in what their readers make of them (`Generation`). The first release, v0.0.1, had others: one flat
message a node and no metadata before them, which STAGE can still write. It is read here and not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, get_args

PACKAGE = "ChakraProtoMsg"
# What a file says that it is. Readers of v0.0.4 enforce `data_deps` alone; those of 1.0.0 `ctrl_deps` too.
Generation = Literal["current", "v0.0.4"]
GENERATIONS: tuple[Generation, ...] = get_args(Generation)
VERSIONS: dict[Generation, str] = {"current": "1.0.0", "v0.0.4": "0.0.4"}


class NodeType(IntEnum):
    """The kinds of work that a node may stand for."""

    INVALID = 0
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


# What StableHLO and our network models call them. A permutation is a message each way, and has no code.
COLLECTIVE_CODES: Mapping[str, CollectiveCode] = {
    "all_reduce": CollectiveCode.ALL_REDUCE,
    "all_gather": CollectiveCode.ALL_GATHER,
    "reduce_scatter": CollectiveCode.REDUCE_SCATTER,
    "all_to_all": CollectiveCode.ALL_TO_ALL,
    "collective_broadcast": CollectiveCode.BROADCAST,
    "collective_reduce": CollectiveCode.REDUCE,
}
# The other way: a code more is read, of a reduce-scatter in equal blocks.
COLLECTIVE_KINDS: Mapping[CollectiveCode, str] = {
    **{code: kind for kind, code in COLLECTIVE_CODES.items()},
    CollectiveCode.REDUCE_SCATTER_BLOCK: "reduce_scatter",
}

# As the schema itself calls them, in the order of their numbers.
NODE_TYPE_NAMES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)  # fmt: skip
COLLECTIVE_NAMES = tuple(code.name for code in CollectiveCode)
ENUMS = {"NodeType": NODE_TYPE_NAMES, "CollectiveCommType": COLLECTIVE_NAMES}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message; `kind` is a scalar of protobuf, an enum or a message of ours."""

    number: int
    name: str
    kind: str
    repeated: bool = False


def _values() -> tuple[Field, ...]:
    """The alternatives of an attribute's value: every scalar type, and a list of each."""
    fields: list[Field] = []
    for index, kind in enumerate(SCALARS):
        fields.append(Field(3 + 2 * index, f"{kind}_val", kind))
        fields.append(Field(4 + 2 * index, f"{kind}_list", list_name(kind)))
    return tuple(fields)


def list_name(kind: str) -> str:
    """The message that holds a list of scalars."""
    return f"{kind.capitalize()}List"


# In the order in which attributes number them.
SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
VALUES = _values()
MESSAGES: dict[str, tuple[Field, ...]] = {
    "AttributeProto": (Field(1, "name", "string"), Field(2, "doc_string", "string"), *VALUES),
    **{list_name(kind): (Field(1, "values", kind, repeated=True),) for kind in SCALARS},
    "GlobalMetadata": (Field(1, "version", "string"), Field(2, "attr", "AttributeProto", repeated=True)),
    "Node": (
        Field(1, "id", "uint64"),
        Field(2, "name", "string"),
        Field(3, "type", "NodeType"),
        Field(4, "ctrl_deps", "uint64", repeated=True),
        Field(5, "data_deps", "uint64", repeated=True),
        Field(6, "start_time_micros", "uint64"),
        Field(7, "duration_micros", "uint64"),
        Field(8, "inputs", "IOInfo"),
        Field(9, "outputs", "IOInfo"),
        Field(10, "attr", "AttributeProto", repeated=True),
    ),
    "IOInfo": (Field(1, "values", "string"), Field(2, "shapes", "string"), Field(3, "types", "string")),
}
VALUE_OF_NUMBER = {field.number: field for field in VALUES}
NUMBER_OF_VALUE = {field.name: field.number for field in VALUES}


def proto_text() -> str:
    """The schema as a `.proto` file, `et.proto` beside this module."""
    lines = [
        "// Chakra execution traces, written from `schema.py` (python -m meshcast.chakra.schema).",
        'syntax = "proto3";', "", f"package {PACKAGE};",
    ]  # fmt: skip
    for name, values in ENUMS.items():
        lines += ["", f"enum {name} {{", *(f"  {value} = {number};" for number, value in enumerate(values)), "}"]
    for name, fields in MESSAGES.items():
        lines += ["", f"message {name} {{"]
        plain = [field for field in fields if name != "AttributeProto" or field not in VALUES]
        lines += [f"  {_declared(field)}" for field in plain]
        if len(plain) < len(fields):
            lines += ["  oneof value {", *(f"    {_declared(field)}" for field in VALUES), "  }"]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _declared(field: Field) -> str:
    return f"{'repeated ' if field.repeated else ''}{field.kind} {field.name} = {field.number};"


if __name__ == "__main__":
    print(proto_text(), end="")
