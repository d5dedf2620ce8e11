"""Nodes and jobs by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshcast.chakra import Node, NodeType, trace_bytes


def compute(number: int, micros: float, *deps: int, **said: Any) -> Node:
    said = {"is_cpu_op": False, "num_ops": 10**6, "tensor_size": 1000, "duration_ns": micros * 1e3, **said}
    return Node(number=number, name=f"k{number}", kind=NodeType.COMPUTE, data_deps=deps, attributes=said)


def collective(number: int, micros: float, *deps: int, kind: int = 0, size: int = 1 << 20, **said: Any) -> Node:
    said = {"is_cpu_op": False, "comm_type": kind, "comm_size": size, **said}
    if micros:
        said["duration_ns"] = micros * 1e3
    return Node(number=number, name=f"c{number}", kind=NodeType.COLLECTIVE, data_deps=deps, attributes=said)


def send(number: int, micros: float, to: int, *deps: int, tag: int = 0, size: int = 1000) -> Node:
    said = {"comm_size": size, "comm_dst": to, "comm_tag": tag, "duration_ns": micros * 1e3, "stream": 7}
    return Node(number=number, name=f"s{number}", kind=NodeType.SEND, data_deps=deps, attributes=said)


def receive(number: int, origin: int, *deps: int, tag: int = 0, size: int = 1000) -> Node:
    said = {"comm_size": size, "comm_src": origin, "comm_tag": tag}
    return Node(number=number, name=f"r{number}", kind=NodeType.RECEIVE, data_deps=deps, attributes=said)


def job(folder: Path, ranks: Sequence[Sequence[Node]], groups: Mapping[str, list[int]] | None = None) -> Path:
    for rank, nodes in enumerate(ranks):
        (folder / f"job.{rank}.et").write_bytes(trace_bytes(nodes))
    if groups is not None:
        (folder / "job.comm_groups.json").write_text(json.dumps(groups))
    return folder / "job"
