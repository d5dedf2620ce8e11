"""Chakra traces as JSON: as protobuf writes messages (`chakra_jsonizer`), and as Chakra's feeder reads a `workload_graph`.

The jsonizer of Chakra's repository writes one object behind the other: the metadata, then nodes, with protobuf's names in camel
case and 64-bit numbers as texts. The feeder's JSON is one object with a list of flat nodes (`Id`, `Name`, `NodeType`, `runtime`).
Both are read; the first is written. Of the second `ctrlDeps` name callers, which its files may leave out: they are passed
over, as the feeder does.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from meshcast.base import InputError
from meshcast.chakra.nodes import Attribute, Node, NodeValues, value_field
from meshcast.chakra.reader import ChakraTrace
from meshcast.chakra.schema import COLLECTIVE_NAMES, NODE_TYPE_NAMES, VERSIONS, Generation, NodeType

_WIDE = ("int64", "uint64", "sint64", "fixed64", "sfixed64")  # written as texts: JavaScript's numbers have 53 bits
_FLAT = (
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_priority",
    "tensor_size",
    "pg_name",
    "num_ops",
)
_CHUNK = 1 << 16  # characters that are read at once to find the metadata
# What files begin with whose first object is a node, or all nodes.
_WITHOUT = re.compile(r'\s*\{\s*"(id|Id|name|workload_graph)"')
FIX = "give what chakra_jsonizer writes, or a workload_graph of Chakra's feeder"


def json_of_trace(
    nodes: Iterable[Node], generation: Generation = "current", metadata: Mapping[str, Attribute] | None = None
) -> str:
    """The file of one rank, an object a line."""
    return "".join(json_lines(nodes, generation, metadata))


def json_lines(
    nodes: Iterable[Node], generation: Generation = "current", metadata: Mapping[str, Attribute] | None = None
) -> Iterator[str]:
    """The file of one rank line by line, so that a long one need not be held."""
    said = [_attribute(name, value) for name, value in (metadata or {}).items()]
    for each in chain([{"version": VERSIONS[generation], "attr": said}], map(_object, nodes)):
        yield json.dumps(each, separators=(",", ":")) + "\n"


def _object(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": str(node.number), "name": node.name, "type": NODE_TYPE_NAMES[node.kind],
        "ctrlDeps": list(map(str, node.control_deps)), "dataDeps": list(map(str, node.data_deps)),
        "startTimeMicros": str(node.start_us), "durationMicros": str(node.duration_us),
    }  # fmt: skip
    for key, values in (("inputs", node.inputs), ("outputs", node.outputs)):
        if values is not None:
            found[key] = {"values": values.values, "shapes": values.shapes, "types": values.types}
    found["attr"] = [_attribute(name, value) for name, value in node.attributes.items()]
    return {key: value for key, value in found.items() if value not in ([], "0") or key == "id"}


def _attribute(name: str, value: Attribute) -> dict[str, Any]:
    kind = value_field(name, value)
    scalar = kind.removesuffix("_list").removesuffix("_val")
    if isinstance(value, tuple):
        return {"name": name, _camel(kind): {"values": [_scalar(scalar, each) for each in value]}}
    return {"name": name, _camel(kind): _scalar(scalar, value)}


def _scalar(kind: str, value: bool | int | float | str | bytes) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if kind in _WIDE else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def trace_of_json(text: str, *, where: str = "trace") -> ChakraTrace:
    """The trace that JSON holds.

    Raises:
        InputError: It holds none; the object that cannot be read is named.
    """
    objects = _objects(text, where)
    try:
        if len(objects) == 1 and "workload_graph" in objects[0]:
            return ChakraTrace(nodes=tuple(map(_flat_node, objects[0]["workload_graph"])), where=where)
        head = objects[0] if objects and "id" not in objects[0] else {}
        return ChakraTrace(
            version=str(head.get("version", "")), metadata=_attributes(head), where=where,
            nodes=tuple(_node(each) for each in (objects[1:] if head else objects)),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(f"a node cannot be read: {error!r}", where=where, fix=FIX) from None


def metadata_of_json(path: Path) -> dict[str, Attribute]:
    """What a file says about all of its nodes in its first object; no more than that is read, and parsed once it is whole."""
    text, whole = "", False
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            while not whole:
                more = file.read(
                    max(_CHUNK, len(text))
                )  # as much again: what is parsed in vain stays less than twice the object
                whole, text = not more, text + more
                if _WITHOUT.match(text):
                    return {}
                try:
                    head, _ = json.JSONDecoder().raw_decode(text.lstrip())
                except json.JSONDecodeError:
                    continue
                return _attributes(head) if isinstance(head, dict) and "id" not in head else {}
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    return {}


def _objects(text: str, where: str) -> list[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    found: list[dict[str, Any]] = []
    text = text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"character {at}: no whole JSON: {error}", where=where, fix=FIX) from None
        if not isinstance(value, dict):
            raise InputError(f"object {len(found)} is no object", where=where, fix=FIX)
        found.append(value)
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return found


def _node(found: Mapping[str, Any]) -> Node:
    kind = found.get("type", 0)
    said = {
        key: NodeValues(**{k: str(v) for k, v in found[key].items()}) for key in ("inputs", "outputs") if key in found
    }
    return Node(
        number=int(found.get("id", 0)), name=str(found.get("name", "")),
        kind=NodeType(NODE_TYPE_NAMES.index(kind) if isinstance(kind, str) else int(kind)),
        control_deps=tuple(map(int, found.get("ctrlDeps", found.get("ctrl_deps", ())))),
        data_deps=tuple(map(int, found.get("dataDeps", found.get("data_deps", ())))),
        start_us=int(found.get("startTimeMicros", 0)), duration_us=int(found.get("durationMicros", 0)),
        inputs=said.get("inputs"), outputs=said.get("outputs"), attributes=_attributes(found),
    )  # fmt: skip


def _attributes(found: Mapping[str, Any]) -> dict[str, Attribute]:
    return {str(each["name"]): _read(each) for each in found.get("attr", ())}


def _read(found: Mapping[str, Any]) -> Attribute:
    for key, value in found.items():
        if key.endswith("List"):
            kind = key.removesuffix("List").lower()
            return tuple(_value(kind, each) for each in value.get("values", ()))  # type: ignore[return-value]  # of one type
        if key.endswith("Val"):
            return _value(key.removesuffix("Val").lower(), value)
    return False


def _value(kind: str, value: Any) -> bool | int | float | str | bytes:
    if kind == "bytes":
        return base64.b64decode(value)
    if kind in ("bool", "string"):
        return bool(value) if kind == "bool" else str(value)
    return float(value) if kind in ("double", "float") else int(value)


def _flat_node(found: Mapping[str, Any]) -> Node:
    attributes: dict[str, Attribute] = {key: found[key] for key in _FLAT if key in found}
    if isinstance(attributes.get("comm_type"), str):
        attributes["comm_type"] = COLLECTIVE_NAMES.index(str(attributes["comm_type"]))
    attributes["is_cpu_op"] = bool(found.get("is_cpu_op", False))
    return Node(
        number=int(found["Id"]), name=str(found.get("Name", "")), kind=NodeType(int(found.get("NodeType", 0))),
        data_deps=tuple(map(int, found.get("data_deps", ()))), duration_us=int(found.get("runtime", 0)),
        attributes=attributes,
    )  # fmt: skip
