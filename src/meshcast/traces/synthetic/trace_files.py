"""Graphs as Chakra traces of all their ranks: the same nodes on each, collectives over the groups that each is in.

All ranks run the same collectives of a group in the same order, on one stream, so that none waits for another for ever. A
permutation is a message to the next rank of its group and one from the rank before. Nodes have no durations: what they take
is worked out from operations and bytes on the device that is asked for. Tensors stand where PyTorch's traces have them
(`traces.synthetic.trace_tensors`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from meshcast.base import Staged, whole_files
from meshcast.chakra import (
    COLLECTIVE_CODES,
    Attribute,
    Node,
    NodeType,
    groups_path,
    rank_path,
    trace_bytes,
)
from meshcast.traces.synthetic.graphs import GroupDims, OpGraph, OpNode
from meshcast.traces.synthetic.trace_tensors import GraphTensors, ReadAndWritten

PERMUTATION = "collective_permute"
# Bytes before a rank's first kernel where that has fewer: ASTRA-sim's roofline takes whole nanoseconds, and its queue of events
# stops at a first node of none (`jobs/nodes/starting.py`). On any device of the catalogue these take more than one.
START_BYTES = 1 << 17
STEP_BEGINS = "the step begins"


def write_graph(graph: OpGraph, prefix: Path, *, first_alone: bool = False, memory: bool = False) -> list[Path]:
    """Writes `PREFIX.RANK.et` of all ranks, and the groups beside them.

    Args:
        graph: What they run.
        prefix: What files begin with.
        first_alone: Writes the first rank for all of them, which stands for its groups where it is read.
        memory: Whether nodes name what they read and write, from which memory follows.

    Raises:
        UsageError: They cannot be written there.
    """
    with whole_files(prefix) as staged:
        return stage_graph(staged, graph, prefix, first_alone=first_alone, memory=memory)


def stage_graph(
    staged: Staged, graph: OpGraph, prefix: Path, *, first_alone: bool = False, memory: bool = False
) -> list[Path]:
    """The files of `write_graph` among others that are put in their places together."""
    written = []
    for path, content in _files(graph, prefix, first_alone, memory):
        staged.path(path).write_bytes(content)
        written.append(path)
    return written


def _files(graph: OpGraph, prefix: Path, first_alone: bool, memory: bool) -> Iterator[tuple[Path, bytes]]:
    names = _group_names(graph, name_all=first_alone)
    metadata: dict[str, Attribute] = {"source": "generated", "like": graph.model, "family": graph.family}
    messages = any(node.kind == PERMUTATION for node in graph.nodes)
    written: dict[tuple[str, ...], bytes] = {}  # by the groups that a rank is in: without messages nothing else differs
    for rank in range(1 if first_alone and not messages else graph.ranks):
        mine = tuple(names[members_of(dims, rank)] for dims in graph.groups)
        if messages or mine not in written:
            written[mine] = trace_bytes(_nodes(graph, rank, names, memory), metadata=metadata)
        yield rank_path(prefix, rank), written[mine]
    # Alone, a rank stands for groups that it meets in; one that it never meets has members without a trace.
    used = {node.group for node in graph.nodes if node.is_collective}
    met = {members_of(graph.groups[group], rank) for group in used for rank in range(graph.ranks)}
    listed = {name: list(members) for members, name in names.items() if name and (members in met or not first_alone)}
    if listed:
        yield groups_path(prefix), (json.dumps(listed) + "\n").encode()


def members_of(dims: GroupDims, rank: int) -> tuple[int, ...]:
    """The ranks of the group of such dimensions that a rank is in."""
    first = rank
    for size, stride in dims:
        first -= (rank // stride) % size * stride
    found = [first]
    for size, stride in dims:
        found = [each + step * stride for each in found for step in range(size)]
    return tuple(sorted(found))


def _group_names(graph: OpGraph, *, name_all: bool) -> dict[tuple[int, ...], str]:
    """Groups by their ranks, numbered from 1 on; that of all ranks has no name unless it is asked for."""
    whole = tuple(range(graph.ranks))
    found: dict[tuple[int, ...], str] = {whole: ""}
    for dims in graph.groups:
        for rank in range(graph.ranks):
            found.setdefault(members_of(dims, rank), str(len(found)))
    return {**found, whole: str(len(found))} if name_all else found


def _nodes(graph: OpGraph, rank: int, names: dict[tuple[int, ...], str], memory: bool) -> list[Node]:
    """The nodes of one rank, two of a permutation; numbers are the same on all ranks."""
    nodes: list[Node] = []
    number_of: list[int] = []
    tensors = GraphTensors(graph)
    first = next((place for place, node in enumerate(graph.nodes) if not node.is_collective), None)
    begins = first is not None and _is_short_start(graph.nodes[first])
    if begins:
        waits: dict[str, Attribute] = {"is_cpu_op": False, "stream": 0, "num_ops": 1, "tensor_size": START_BYTES}
        nodes.append(_node(1, STEP_BEGINS, NodeType.COMPUTE, (), {**waits, "op_type": "wait"}))
    for place, node in enumerate(graph.nodes):
        deps = (1,) if begins and place == first else tuple(number_of[parent] for parent in node.parents)
        name, io = f"{node.kind} {place}", tensors.of(place)
        said: dict[str, Attribute] = {"is_cpu_op": False, "stream": 1 if node.is_collective else 0}
        if node.repeat > 1:
            said["repeat"] = node.repeat
        if memory:
            said |= _held(graph, place)
        total = node.bytes * node.repeat
        if node.kind == PERMUTATION:
            members = members_of(graph.groups[node.group], rank)
            at, ring = members.index(rank), len(members)
            peers = {"comm_dst": members[(at + 1) % ring], "comm_src": members[at - 1]}
            for kind, key in ((NodeType.SEND, "comm_dst"), (NodeType.RECEIVE, "comm_src")):
                more: dict[str, Attribute] = {"comm_size": total, key: peers[key], "comm_tag": place}
                nodes.append(_node(len(nodes) + 1, name, kind, deps, {**said, **more}, io))
        elif node.is_collective:
            members = members_of(graph.groups[node.group], rank)
            said |= {"comm_type": int(COLLECTIVE_CODES[node.kind]), "comm_size": total}
            if names[members]:
                said["pg_name"] = names[members]
            nodes.append(_node(len(nodes) + 1, name, NodeType.COLLECTIVE, deps, said, io))
        else:
            nodes.append(_node(len(nodes) + 1, name, NodeType.COMPUTE, deps, {**said, **_work(node, total)}, io))
        number_of.append(len(nodes))
    return nodes


def _held(graph: OpGraph, place: int) -> dict[str, Attribute]:
    """What a node reads and writes by name, with bytes; the state is there from the first node to the last."""
    node, last = graph.nodes[place], len(graph.nodes) - 1
    read = [(f"r{parent}", graph.nodes[parent].written) for parent in node.parents]
    if graph.state and place in (0, last):
        read.append(("state", graph.state))
    written = [(f"r{place}", node.written)] if node.written else []
    return {
        key: tuple(text for name, size in row if size for text in (name, str(size)))
        for key, row in (("inputs", read), ("outputs", written))
    }


def _is_short_start(node: OpNode) -> bool:
    return not node.parents and node.bytes * node.repeat < START_BYTES


def _work(node: OpNode, total: int) -> dict[str, Attribute]:
    operations = max(1, round(node.flops * node.repeat))
    found: dict[str, Attribute] = {
        "num_ops": operations,
        "tensor_size": total,
        "op_type": node.kind,
        "dtype": node.dtype,
    }
    return {**found, "matrix_ops": operations if node.matrix else 0}


def _node(
    number: int,
    name: str,
    kind: NodeType,
    deps: tuple[int, ...],
    said: dict[str, Attribute],
    io: ReadAndWritten = (None, None),
) -> Node:
    return Node(number=number, name=name, kind=kind, data_deps=deps, attributes=said, inputs=io[0], outputs=io[1])
