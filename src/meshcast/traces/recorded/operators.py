"""`HostTrace`: PyTorch's execution trace, the operators of the host with their tensors, in both generations of its schema.

Until schema 1.0.1 a node had `parent`, `inputs`, `input_shapes`, ... side by side; since 1.0.2-chakra.0.0.4 it has `ctrl_deps`,
`inputs` and `outputs` of three lists each, and everything else among `attrs`
(torch/csrc/profiler/standalone/execution_trace_observer.cpp). Nodes number what the host ran in the order in which it began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.base import InputError
from meshcast.traces.recorded.json_stream import stream_json

ROOTS = ("[pytorch|profiler|execution_graph|", "[pytorch|profiler|execution_trace|")
GROUPS = "process_group:init"
# Attributes that the converter of Chakra's repository hands on, by the names that both generations have for them.
HANDED_ON = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")


@dataclass(slots=True, kw_only=True)
class Operator:
    """One node of an execution trace.

    Attributes:
        number: Its number there.
        parent: The number of what called it.
        record: The number that the profiler may know it by; 0 where nothing ran.
        thread: Where it ran, numbered by the execution trace.
        values: What it was given: a tensor is [id, storage, offset, elements, bytes of each, device].
        shapes: Of what it was given; so `types`.
        said: Everything else.
    """

    number: int
    name: str
    parent: int
    record: int
    thread: int
    values: list[Any] = field(default_factory=list)
    shapes: list[Any] = field(default_factory=list)
    types: list[Any] = field(default_factory=list)
    out_values: list[Any] = field(default_factory=list)
    out_shapes: list[Any] = field(default_factory=list)
    out_types: list[Any] = field(default_factory=list)
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_root(self) -> bool:
        """Whether it stands for a process or a thread, and nothing that ran."""
        return self.name.startswith(ROOTS)


@dataclass(slots=True, kw_only=True)
class HostTrace:
    """An execution trace.

    Attributes:
        where: The file.
        schema: The version of its schema.
        operators: By number, in ascending order.
        groups: Members and sizes of process groups by name, as the trace lists them.
    """

    where: str
    schema: str
    operators: dict[int, Operator]
    groups: dict[str, tuple[tuple[int, ...], int]]


def read_host_trace(path: Path) -> HostTrace:
    """The execution trace in a file.

    Raises:
        InputError: It is none, or a node lacks what every node has.
    """
    schema, nodes = "", list[Operator]()
    first_generation = False
    for key, value in stream_json(path, "nodes"):
        if key == "schema":
            schema = str(value)
        elif key is None:
            try:
                first_generation = "parent" in value
                nodes.append(_first(value) if first_generation else _second(value))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InputError(
                    f"node {len(nodes)} ({str(value)[:60]}...) cannot be read: {error!r}", where=str(path),
                    fix="give an execution trace of torch.profiler.ExecutionTraceObserver",
                ) from None  # fmt: skip
    if not nodes:
        raise InputError(
            "has no nodes", where=str(path), fix="give an execution trace of torch.profiler.ExecutionTraceObserver"
        )
    nodes.sort(key=lambda node: node.number)
    groups: dict[str, tuple[tuple[int, ...], int]] = {}
    for node in nodes:
        if GROUPS in node.name:
            groups |= _groups(node, path)
    return HostTrace(
        where=str(path), schema=schema, operators={node.number: node for node in nodes}, groups=groups
    )  # fmt: skip


def _first(node: dict[str, Any]) -> Operator:
    return Operator(
        number=_number(node["id"]), name=str(node["name"]), parent=_number(node["parent"]), record=int(node.get("rf_id", 0)),
        thread=int(node.get("tid", 0)), values=_list(node, "inputs"), shapes=_list(node, "input_shapes"),
        types=_list(node, "input_types"), out_values=_list(node, "outputs"), out_shapes=_list(node, "output_shapes"),
        out_types=_list(node, "output_types"), said={key: node[key] for key in HANDED_ON if key in node},
    )  # fmt: skip


def _second(node: dict[str, Any]) -> Operator:
    said = {str(each["name"]): each["value"] for each in node.get("attrs", ())}
    read, written = node.get("inputs", {}), node.get("outputs", {})
    return Operator(
        number=_number(node["id"]), name=str(node["name"]), parent=_number(node["ctrl_deps"]),
        record=int(said.get("rf_id", 0)), thread=int(said.get("tid", 0)), values=_list(read, "values"),
        shapes=_list(read, "shapes"), types=_list(read, "types"), out_values=_list(written, "values"),
        out_shapes=_list(written, "shapes"), out_types=_list(written, "types"), said=said,
    )  # fmt: skip


def _number(value: Any) -> int:
    number = int(value)
    if abs(number) >= 1 << 63:
        raise ValueError(f"{number} is no number of 64 bits")
    return number


def _list(node: Mapping[str, Any], key: str) -> list[Any]:
    value = node.get(key, [])
    if not isinstance(value, list):
        raise TypeError(f"{key} is {value!r:.40}, not a list")
    return value


def _groups(node: Operator, path: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    try:
        listed = json.loads(str(node.values[0]))
        return {
            str(each["pg_name"]): (tuple(map(int, each.get("ranks") or ())), int(each.get("group_size", 0)))
            for each in listed
        }
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"node {node.number} ({node.name}) lists process groups in a form that is not known: {error!r}",
            where=str(path), fix='PyTorch writes [{"pg_name": "0", "ranks": [0, 1], "group_size": 2}]',
        ) from None  # fmt: skip
