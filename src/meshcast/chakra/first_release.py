"""Nodes of the first release of the schema (v0.0.1), which STAGE can still write, as nodes of today.

A node was one flat message: `parent`s for dependencies, and a field where attributes stand now. Nothing stood before the
nodes. Types and collectives were numbered otherwise.
"""

from __future__ import annotations

from meshcast.chakra.nodes import Attribute, Node
from meshcast.chakra.schema import CollectiveCode, NodeType
from meshcast.chakra.wire import WireError, fields, read_varint

_TYPES = (
    NodeType.INVALID, NodeType.MEMORY_LOAD, NodeType.MEMORY_STORE, NodeType.COMPUTE, NodeType.SEND, NodeType.RECEIVE,
    NodeType.COLLECTIVE,
)  # fmt: skip
_COLLECTIVES = {
    1: CollectiveCode.ALL_REDUCE, 2: CollectiveCode.ALL_TO_ALL, 3: CollectiveCode.ALL_GATHER,
    4: CollectiveCode.REDUCE_SCATTER,
}  # fmt: skip
_ATTRIBUTES = {
    6: "tensor_size", 12: "num_ops", 16: "comm_src", 17: "comm_dst", 18: "comm_size", 19: "comm_tag",
    20: "comm_priority",
}  # fmt: skip
_COLLECTIVE, _INVOLVED, _GROUP = 13, 14, 15


def read_flat_node(data: bytes, at: int, end: int) -> Node:
    """One node.

    Raises:
        WireError: It is none.
    """
    number = kind = duration = 0
    name, parents, involved = "", list[int](), list[bool]()
    attributes: dict[str, Attribute] = {}
    for place, _, value, begin in fields(data, at, end):
        if isinstance(value, bytes):
            if place == 2:
                name = value.decode(errors="replace")
            elif place in (4, _INVOLVED):
                inside = begin
                while inside < begin + len(value):
                    each, inside = read_varint(data, inside, begin + len(value))
                    parents.append(each) if place == 4 else involved.append(bool(each))
            continue
        if place == 1:
            number = value
        elif place == 3:
            kind = value - (value >> 63 << 64)  # an enum is signed
        elif place == 4:
            parents.append(value)
        elif place == 7:
            duration = value
        elif place == _COLLECTIVE and value in _COLLECTIVES:
            attributes["comm_type"] = int(_COLLECTIVES[value])
        elif place == _INVOLVED:
            involved.append(bool(value))
        elif place == _GROUP and value:
            attributes["pg_name"] = str(value)
        elif place in _ATTRIBUTES:
            attributes[_ATTRIBUTES[place]] = value
    if not 0 <= kind < len(_TYPES):
        raise WireError(
            f"node {number} ({name!r}) has type {kind}, and types of v0.0.1 go from 0 to {len(_TYPES) - 1}", at
        )
    if involved:
        attributes["involved_dim"] = tuple(involved)
    return Node(
        number=number, name=name, kind=_TYPES[kind], data_deps=tuple(parents), duration_us=duration,
        attributes=attributes,
    )  # fmt: skip
