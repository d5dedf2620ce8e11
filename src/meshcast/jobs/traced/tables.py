"""A trace for people and as JSON: what it says about itself, its nodes by kind, and the nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from meshcast.base import format_bytes, format_time
from meshcast.chakra import (
    COLLECTIVE_NAMES,
    KERNELS,
    NODE_TYPE_NAMES,
    Attribute,
    ChakraTrace,
    CollectiveCode,
    Node,
    NodeType,
    unpacked_kernels,
)
from meshcast.jobs.traced.steps import seconds_of
from meshcast.results import Section, capped_lines, columns

SCHEMA = "meshcast.chakra-nodes/1"
MOST_SHOWN = 100  # characters of a text in the metadata: some hold whole programs
_SIZES = ("comm_size", "tensor_size")


def trace_json(trace: ChakraTrace) -> dict[str, Any]:
    """All of a trace as an object of JSON."""
    return {
        "schema": SCHEMA,
        "file": trace.where,
        "version": trace.version,
        "metadata": _json(trace.metadata) | _kernels(trace),
        "nodes": [_node_json(node) for node in trace.nodes],
    }


def _kernels(trace: ChakraTrace) -> dict[str, Any]:
    """The kernels of the metadata, unpacked where that is what they are; `predict` says what is wrong with others."""
    packed = trace.metadata.get(KERNELS)
    try:
        return {KERNELS: unpacked_kernels(packed)} if isinstance(packed, bytes) else {}
    except ValueError:
        return {}


def _node_json(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"id": node.number, "name": node.name, "type": NODE_TYPE_NAMES[node.kind]}
    for key, deps in (("ctrl_deps", node.control_deps), ("data_deps", node.data_deps)):
        if deps:
            found[key] = list(deps)
    for key, time in (("start_time_micros", node.start_us), ("duration_micros", node.duration_us)):
        if time:
            found[key] = time
    for key, said in (("inputs", node.inputs), ("outputs", node.outputs)):
        if said is not None:
            found[key] = {"values": said.values, "shapes": said.shapes, "types": said.types}
    return {**found, "attr": _json(dict(node.attributes))}


def _json(attributes: dict[str, Attribute]) -> dict[str, Any]:
    return {
        name: [_scalar(each) for each in value] if isinstance(value, tuple) else _scalar(value)
        for name, value in attributes.items()
    }


def _scalar(value: bool | int | float | str | bytes) -> bool | int | float | str:
    """A value as JSON can have it: bytes as hexadecimal digits, `nan` and `inf` as texts."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def trace_sections(trace: ChakraTrace, *, limit: int) -> list[Section]:
    """The sections that describe a trace: a summary, nodes by kind, the first nodes."""
    about = [("version", trace.version or "not said"), ("nodes", f"{len(trace.nodes):,}")]
    about += [(name, _said(value)) for name, value in trace.metadata.items()]
    counts: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0])
    for node in trace.nodes:
        each = counts[kind_of(node)]
        each[0] += 1
        each[1] += seconds_of(node) or 0.0
        each[2] += bytes_of(node)
    kinds = [
        (kind, f"{int(count):,}", format_time(seconds), format_bytes(int(size)))
        for kind, (count, seconds, size) in sorted(counts.items(), key=lambda item: -item[1][1])
    ]
    rows = [
        (
            str(node.number), node.name, kind_of(node), format_time(seconds_of(node) or 0.0), format_bytes(bytes_of(node)),
            _listed(node.data_deps), _listed(node.control_deps), _with(node),
        )
        for node in trace.nodes[:limit]
    ]  # fmt: skip
    heads = columns(">node", "~name", "kind", ">time", ">bytes", "~waits for", "?in order", "?with")
    more = len(trace.nodes) - len(rows)
    return [
        Section(title=trace.where, rows=about),
        Section(title="Nodes by kind", columns=columns("kind", ">nodes", ">time", ">bytes"), rows=kinds),
        capped_lines(
            Section(title="Nodes", columns=heads, rows=rows, note=f"and {more:,} more" if more else ""), limit
        ),
    ]


def _said(value: Attribute) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    text = " ".join(str(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"


def kind_of(node: Node) -> str:
    """What a node does, in words."""
    host = bool(node.attributes.get("is_cpu_op"))
    if node.kind is NodeType.COLLECTIVE and not host:
        code = node.attributes.get("comm_type")
        if isinstance(code, int) and 0 <= code < len(COLLECTIVE_NAMES):
            return CollectiveCode(code).name.lower().replace("_", "-")
        return f"collective {code!r}"
    return ("host " if host else "") + node.kind.name.lower().replace("_", " ")


def bytes_of(node: Node) -> int:
    """Bytes that it moves or sends."""
    return next((size for name in _SIZES if isinstance(size := node.attributes.get(name), int)), 0)


def _listed(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _with(node: Node) -> str:
    said = (("pg_name", "group"), ("comm_dst", "to"), ("comm_src", "from"), ("comm_tag", "tag"))
    return " ".join(f"{word} {node.attributes[name]!s}" for name, word in said if name in node.attributes)
