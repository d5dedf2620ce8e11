"""`Step`: the nodes of one rank's trace as what has to be run: streams, waits, work, whom it meets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshcast.chakra import Attribute, CollectiveCode, Node, NodeType, Trace, checked_trace
from meshcast.chakra.checking import named
from meshcast.chakra.schema import COLLECTIVE_KINDS
from meshcast.errors import InputError, UnsupportedError

Does = Literal["compute", "host", "collective", "send", "receive", "nothing"]
ALL_RANKS = ""  # the name of the group that is not named


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node.

    Attributes:
        number: Its number in the file, by which steps that could start at once are ordered.
        name: Its name.
        does: What it does.
        before: Indices of the steps that it waits for.
        stream: Where it runs; steps of one stream follow each other.
        seconds: How long it took, or None where the trace does not say.
        flops: Operations; so `bytes` that it moves.
        matrix_flops: Operations of products among them, where the trace tells them apart.
        dtype: Of its arithmetic, where the trace says it.
        repeat: Launches that it stands for.
        kind: Of a collective, as `workload.Collective` calls it.
        size: Bytes of a collective or message, as ASTRA-sim counts them.
        group: Name of a collective's group.
        peer: The other rank of a message.
        tag: Of a message.
        waits: Whether it stands for a wait, which takes as long on any device.
    """

    number: int
    name: str
    does: Does
    before: tuple[int, ...]
    stream: tuple[str, int]
    seconds: float | None
    flops: float = 0.0
    bytes: int = 0
    matrix_flops: float | None = None
    dtype: str = ""
    repeat: int = 1
    kind: str = ""
    size: int = 0
    group: str = ALL_RANKS
    peer: int = 0
    tag: int = 0
    waits: bool = False


def steps_of(trace: Trace) -> tuple[Step, ...]:
    """The steps of a trace.

    Raises:
        InputError: It cannot be run, or a node lacks an attribute that it needs.
        UnsupportedError: A collective is of a kind that no network model answers for.
    """
    trace = checked_trace(trace)
    place = {node.number: index for index, node in enumerate(trace.nodes)}
    return tuple(_step(trace, index, node, place) for index, node in enumerate(trace.nodes))


def _step(trace: Trace, index: int, node: Node, place: Mapping[int, int]) -> Step:
    said = node.attributes
    before = tuple(dict.fromkeys(place[number] for number in (*node.data_deps, *node.control_deps)))
    host = bool(said.get("is_cpu_op", False))
    seconds = seconds_of(node)
    repeat = _whole(trace, index, "repeat", 1)
    if node.kind is NodeType.COMPUTE or host:
        matrix = said.get("matrix_ops")
        thread = said.get("tid", 0)
        return Step(
            number=node.number, name=node.name, does="host" if host else "compute", before=before, seconds=seconds,
            stream=("host", thread if isinstance(thread, int) else 0) if host else ("device", _stream(said, 0)),
            flops=float(_whole(trace, index, "num_ops", 0)), bytes=_whole(trace, index, "tensor_size", 0),
            matrix_flops=float(matrix) if isinstance(matrix, int) else None, dtype=str(said.get("dtype", "")),
            repeat=max(1, repeat), waits=said.get("op_type") == "wait",
        )  # fmt: skip
    if node.kind is NodeType.COLLECTIVE:
        code = _whole(trace, index, "comm_type", None)
        kind = COLLECTIVE_KINDS.get(CollectiveCode(code)) if 0 <= code <= max(CollectiveCode) else None
        if kind is None:
            raise UnsupportedError(
                f"{named(trace, index)} is a collective of type {code}, which no network model here answers for",
                where=trace.where, fix="types are " + ", ".join(f"{c:d} ({c.name})" for c in COLLECTIVE_KINDS),
            )  # fmt: skip
        group = str(said.get("pg_name", ALL_RANKS))
        return Step(
            number=node.number, name=node.name, does="collective", before=before, seconds=seconds,
            stream=("link", _stream(said, 1)), repeat=max(1, repeat), kind=kind,
            size=_whole(trace, index, "comm_size", None), group=ALL_RANKS if group == "0" else group,
        )  # fmt: skip
    if node.kind in (NodeType.SEND, NodeType.RECEIVE):
        sends = node.kind is NodeType.SEND
        return Step(
            number=node.number, name=node.name, does="send" if sends else "receive", before=before,
            stream=("link", _stream(said, 1)), repeat=max(1, repeat), seconds=seconds if sends else 0.0,
            size=_whole(trace, index, "comm_size", None), tag=_whole(trace, index, "comm_tag", 0),
            peer=_whole(trace, index, "comm_dst" if sends else "comm_src", None),
        )  # fmt: skip
    if node.kind in (NodeType.MEMORY_LOAD, NodeType.MEMORY_STORE):
        return Step(
            number=node.number, name=node.name, does="compute", before=before, seconds=seconds, stream=("memory", 0),
            bytes=_whole(trace, index, "tensor_size", None),
        )  # fmt: skip
    return Step(number=node.number, name=node.name, does="nothing", before=before, seconds=0.0, stream=("none", index))


def _stream(said: Mapping[str, Attribute], default: int) -> int:
    found = said.get("stream", default)
    return found if isinstance(found, int) else default


def seconds_of(node: Node) -> float | None:
    """How long a node takes, as exactly as it says; None where it says nothing."""
    exact = node.attributes.get("duration_ns")
    if isinstance(exact, (int, float)) and math.isfinite(exact) and exact >= 0:
        return exact * 1e-9
    return node.duration_us * 1e-6 if node.duration_us else None


def _whole(trace: Trace, index: int, name: str, default: int | None) -> int:
    found = trace.nodes[index].attributes.get(name, default)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if found is None:
        raise InputError(
            f"{named(trace, index)} has no attribute {name!r}, which a node of its type needs", where=trace.where,
            fix="export it again, or add the attribute",
        )  # fmt: skip
    if not isinstance(found, int) or found < 0:
        raise InputError(
            f"{named(trace, index)}: {name} is {found!r}, not a whole number", where=trace.where,
            fix="write a whole number that is not negative",
        )  # fmt: skip
    return found


def groups_within(trace: Trace) -> dict[str, tuple[int, ...]]:
    """Groups that a trace itself lists: PyTorch writes them into a metadata node, `[{"pg_name": ..., "ranks": [...]}]`."""
    found: dict[str, tuple[int, ...]] = {}
    for node in trace.nodes:
        if node.kind is not NodeType.METADATA or node.inputs is None or "pg_name" not in node.inputs.values:
            continue
        try:
            listed = json.loads(node.inputs.values.strip().removeprefix("['").removesuffix("']"))
            found |= {str(each["pg_name"]): tuple(int(rank) for rank in each["ranks"]) for each in listed}
        except (ValueError, KeyError, TypeError):
            at = trace.offsets[trace.nodes.index(node)] if trace.offsets else 0
            raise InputError(
                f"node {node.number} {node.name!r} (at byte {at}) lists process groups in a form that is not known",
                where=trace.where, fix='write [{"pg_name": "1", "ranks": [0, 1]}]',
            ) from None  # fmt: skip
    return {name: ranks for name, ranks in found.items() if ranks}
