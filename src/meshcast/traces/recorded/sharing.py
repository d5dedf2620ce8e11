"""Traces of others without what they tell about a program: names, shapes, operators and clocks; sizes can be coarsened.

What stays is on a list (`KEPT`), so that an attribute nobody has thought of is left out. Names become the class of the kernel and
a number, the same on all ranks. The result is searched for every name, path and shape that was there (`leaks`), as bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.base import InputError, UnsupportedError, UsageError, whole_files
from meshcast.chakra import Attribute, ChakraTrace, Node, NodeType, groups_path, rank_path, read_trace, trace_bytes
from meshcast.evidence import class_of_name
from meshcast.jobs import TraceFiles, find_traces, read_groups
from meshcast.traces import coarse, coarse_size
from meshcast.traces.recorded.understanding import understood

NAME = "shared"
TIMES, SIZES = ("duration_ns",), ("num_ops", "matrix_ops", "tensor_size", "comm_size", "host_bytes")
KEPT = frozenset(
    {
        "is_cpu_op", "tid", "stream", "comm_type", "pg_name", "comm_src", "comm_dst", "comm_tag", "dtype", "repeat",
        "comm_priority", *TIMES, *SIZES,
    }
)  # fmt: skip
WAITS = ("wait", "pause")  # values of op_type that say nothing about a program
SHORTEST_NAME = 5  # characters: shorter ones are found in any bytes
_PATH = re.compile(r"(?:/[\w.\-]{2,}){2,}|[\w\-]+\.(?:py|json|cpp|cu)\b")
_SHAPE = re.compile(r"\[\d+(?:, ?\d+)+\]")
_PLAIN = re.compile(r"[a-z\- ]+(: [a-z\-]+)? \d+")


def share_traces(files: TraceFiles, out: Path, coarseness: float = 0.0) -> dict[str, Any]:
    """Writes a job's traces without names into a folder; returns what was taken out, what stays, and what a replay makes of it.

    Args:
        files: The traces.
        out: A folder.
        coarseness: Durations and sizes go to the nearest power of one more than this; 0 leaves them.

    Raises:
        InputError: A trace cannot be read, or something that should be gone is still there: then nothing is written.
        UsageError: The folder holds the originals.
    """
    if out.resolve() in {path.resolve().parent for path in files.by_rank.values()}:
        raise UsageError("holds the originals", where=str(out), fix="give another folder: this one may be handed on")
    traces = {rank: read_trace(path) for rank, path in files.by_rank.items()}
    names: dict[str, str] = {}
    prefix = out / NAME
    listed = read_groups(files.groups)
    numbers = _group_numbers({*listed, *(name for trace in traces.values() for name in _group_names(trace))})
    groups = {numbers[name]: list(ranks) for name, ranks in listed.items()}
    contents = {
        rank_path(prefix, rank): trace_bytes(
            _renumbered([_plain(_with_group(node, numbers), names, coarseness) for node in trace.nodes])
        )
        for rank, trace in traces.items()
    }
    found = leaks(contents.values(), traces.values())
    if found:
        raise InputError(
            f"{len(found)} names, paths or shapes would still be there, {found[0]!r} first", where=files.name,
            fix="the name is that of a class of kernels: rename it in the trace",
        )  # fmt: skip
    with whole_files(prefix) as staged:
        for path, content in contents.items():
            staged.path(path).write_bytes(content)
        if groups:
            staged.path(groups_path(prefix)).write_text(json.dumps(groups) + "\n")
    before, after = (_replayed(each) for each in (files, find_traces(prefix)))
    return {
        "ranks": len(traces), "nodes": sum(len(trace.nodes) for trace in traces.values()),
        "names_removed": len(names), "values_removed": sum(_values(trace) for trace in traces.values()),
        "attributes_removed": sorted(
            {key for trace in traces.values() for node in trace.nodes for key in node.attributes} - KEPT - {"op_type"}
        ),
        "metadata_removed": sorted({key for trace in traces.values() for key in trace.metadata}), "left": sorted(KEPT),
        "leaks": found, "coarseness": coarseness, "bound": (1 + coarseness) ** 0.5 - 1, "replay_before_s": before,
        "replay_after_s": after, "files": [str(path) for path in contents],
    }  # fmt: skip


def _replayed(files: TraceFiles) -> float | None:
    """What a replay takes; None of traces without durations, as generators write them."""
    try:
        return understood(files).run.duration
    except UnsupportedError:
        return None


def _group_names(trace: ChakraTrace) -> set[str]:
    return {said for node in trace.nodes if isinstance(said := node.attributes.get("pg_name"), str)}


def _group_numbers(names: set[str]) -> dict[str, str]:
    """Groups by numbers: those that are one stay, as 0 is that of all ranks; names get the ones behind them."""
    told = sorted(name for name in names if not name.isdecimal())
    first = 1 + max((int(name) for name in names if name.isdecimal()), default=0)
    return {name: name for name in names} | {name: str(first + place) for place, name in enumerate(told) if name}


def _with_group(node: Node, numbers: dict[str, str]) -> Node:
    said = node.attributes.get("pg_name")
    if not isinstance(said, str):
        return node
    return replace(node, attributes={**node.attributes, "pg_name": numbers[said]})


def _renumbered(nodes: Sequence[Node]) -> list[Node]:
    """Nodes with threads numbered from 0 on: the system's numbers are of one process."""
    threads: dict[Attribute, int] = {}
    return [
        replace(node, attributes={**node.attributes, "tid": threads.setdefault(node.attributes["tid"], len(threads))})
        if "tid" in node.attributes
        else node
        for node in nodes
    ]


def _values(trace: ChakraTrace) -> int:
    return sum(node.inputs is not None or node.outputs is not None for node in trace.nodes)


def _plain(node: Node, names: dict[str, str], coarseness: float) -> Node:
    """A node without names, values and clocks."""
    if node.name not in names:
        kind = "host" if node.attributes.get("is_cpu_op") else _kind(node)
        names[node.name] = f"{kind} {len(names)}"
    said: dict[str, Attribute] = {}
    for key, value in node.attributes.items():
        if key == "op_type" and value in WAITS:
            said[key] = value
        elif key in (*TIMES, *SIZES) and coarseness and isinstance(value, (int, float)) and value:
            said[key] = coarse(float(value), coarseness) if key in TIMES else coarse_size(round(value), coarseness)
        elif key in KEPT:
            said[key] = value
    duration = node.duration_us
    if coarseness and duration:
        duration = coarse_size(duration, coarseness)
    return replace(
        node, name=names[node.name], control_deps=(), start_us=0, duration_us=duration, inputs=None, outputs=None,
        attributes=said,
    )  # fmt: skip


def _kind(node: Node) -> str:
    if node.kind is not NodeType.COMPUTE:
        return {NodeType.COLLECTIVE: "collective", NodeType.SEND: "send", NodeType.RECEIVE: "receive"}.get(
            node.kind, "node"
        )
    return class_of_name(node.name)


def leaks(contents: Iterable[bytes], traces: Iterable[ChakraTrace]) -> list[str]:
    """Names of nodes and groups, and paths and shapes anywhere in the texts of traces, that are found in the bytes of others."""
    whole = b"\0".join(contents)
    names: set[str] = set()
    told: set[str] = set()
    for trace in traces:
        names |= {node.name for node in trace.nodes} | {name for name in _group_names(trace) if not name.isdecimal()}
        for text in _texts(trace):
            told.update(each for pattern in (_PATH, _SHAPE) for each in pattern.findall(text))
    words = {name for name in names if not _PLAIN.fullmatch(name)} | told
    return sorted(word for word in words if len(word) >= SHORTEST_NAME and word.encode() in whole)


def _texts(trace: ChakraTrace) -> Iterator[str]:
    """All texts of a trace but the names of its nodes."""
    yield from (value for value in trace.metadata.values() if isinstance(value, str))
    for node in trace.nodes:
        yield from (value for value in node.attributes.values() if isinstance(value, str))
        for said in (node.inputs, node.outputs):
            if said is not None:
                yield from (said.values, said.shapes, said.types)


def verify_shared(shared: TraceFiles, original: TraceFiles) -> list[str]:
    """What of an original is still in traces that are to be shared.

    Raises:
        InputError: One of them cannot be read.
    """
    return leaks([path.read_bytes() for path in _paths(shared)], [read_trace(path) for path in _paths(original)])


def _paths(files: TraceFiles) -> Sequence[Path]:
    return list(dict.fromkeys(files.by_rank.values()))
