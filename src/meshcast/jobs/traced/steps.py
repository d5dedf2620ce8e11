"""`TraceStep`: the nodes of one rank's trace as what has to be run: streams, waits, work, whom it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshcast.base import UnsupportedError
from meshcast.chakra import (
    BEGINS,
    COLLECTIVE_KINDS,
    HOST_BYTES,
    LEAST,
    UNTIL,
    ChakraTrace,
    CollectiveCode,
    Node,
    NodeType,
    checked_trace,
    named_node,
)
from meshcast.jobs.traced.attributes import MICROSECOND, NANOSECOND, Attributes

Does = Literal["compute", "host", "collective", "send", "receive", "nothing"]
BARRIER = "barrier"  # a collective that moves nothing
# Collectives of a root that programs of ours do not have: what ranks put in is gathered at one, or handed out by one.
ROOTED = {CollectiveCode.GATHER: "gather", CollectiveCode.SCATTER: "scatter"}
ALL_RANKS = ""  # the name of the group that is not named
DEFAULT_GROUP = "0"  # PyTorch's name of the group of all ranks, unless a trace lists others under it


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
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
        dtype: The dtype of its arithmetic, where the trace says it.
        repeat: Launches that it stands for.
        kind: The kind of a collective, as `workload.Collective` calls it.
        size: Bytes of a collective or message, as ASTRA-sim counts them.
        group: Name of a collective's group.
        peer: The other rank of a message.
        tag: The tag of a message.
        waits: Whether it stands for a wait, which takes as long on any device.
        begins: Whether a program begins with it.
        until: For a wait, the seconds behind its program's begin before which it does not end, where durations are worked out;
            `least` that it lasts at least. None where it takes its own time.
        host_bytes: The bytes that all launches of a copy between the device and its host move.
        invalid: Whether its node has no type (INVALID_NODE): it does nothing, and what waits for it goes on.
        kernel: Everything its cost depends on, as a text of JSON, where the trace has it (`jobs.traced.kernels`).
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
    begins: bool = False
    until: float | None = None
    least: float = 0.0
    host_bytes: int = 0
    invalid: bool = False
    kernel: str = ""

    @property
    def says_work(self) -> bool:
        """Whether the node states its work, in operations or bytes."""
        return bool(self.flops or self.bytes)

    @property
    def alike(self) -> tuple[str, int, int]:
        """What all ranks of a collective have in common: kind, bytes and launches.

        An all-to-all may be uneven: ranks differ in what they send.
        """
        return self.kind, 0 if self.kind == "all_to_all" else self.size, self.repeat


def steps_of(trace: ChakraTrace) -> tuple[TraceStep, ...]:
    """The steps of a trace.

    Raises:
        InputError: It cannot be run, or a node lacks an attribute that it needs.
        UnsupportedError: A collective is of a kind that no network model answers for.
    """
    trace = checked_trace(trace)
    place = {node.number: index for index, node in enumerate(trace.nodes)}
    return tuple(_step(trace, index, node, place) for index, node in enumerate(trace.nodes))


def _step(trace: ChakraTrace, index: int, node: Node, place: Mapping[int, int]) -> TraceStep:
    said = Attributes(trace, index)
    before = tuple(dict.fromkeys(place[number] for number in (*node.data_deps, *node.control_deps)))
    host = said.flag("is_cpu_op")
    seconds = said.seconds()
    repeat = said.whole("repeat", 1, least=1)
    if node.kind is NodeType.COMPUTE or host:
        return TraceStep(
            number=node.number, name=node.name, does="host" if host else "compute", before=before, seconds=seconds,
            stream=("host", said.lane("tid", 0)) if host else ("device", said.lane("stream", 0)),
            flops=float(said.whole("num_ops", 0)), bytes=said.size("tensor_size", 0, repeat),
            matrix_flops=_matrix_flops(said), dtype=str(node.attributes.get("dtype", "")), repeat=repeat,
            waits=node.attributes.get("op_type") == "wait", until=said.nanoseconds(UNTIL),
            least=said.nanoseconds(LEAST) or 0.0, begins=said.flag(BEGINS),
            host_bytes=said.size(HOST_BYTES, 0, repeat) if host else 0,
        )  # fmt: skip
    if node.kind is NodeType.COLLECTIVE:
        kind = _collective_kind(said)
        return TraceStep(
            number=node.number, name=node.name, does="collective", before=before, seconds=seconds,
            stream=("link", said.lane("stream", 1)), repeat=repeat, kind=kind,
            size=0 if kind == BARRIER else said.size("comm_size", None, repeat),
            group=str(node.attributes.get("pg_name", ALL_RANKS)),
        )  # fmt: skip
    if node.kind in (NodeType.SEND, NodeType.RECEIVE):
        sends = node.kind is NodeType.SEND
        return TraceStep(
            number=node.number, name=node.name, does="send" if sends else "receive", before=before,
            stream=("link", said.lane("stream", 1)), repeat=repeat, seconds=seconds if sends else 0.0,
            size=said.size("comm_size", None, repeat), tag=said.whole("comm_tag", 0),
            peer=said.whole("comm_dst" if sends else "comm_src"),
        )  # fmt: skip
    if node.kind in (NodeType.MEMORY_LOAD, NodeType.MEMORY_STORE):
        return TraceStep(
            number=node.number, name=node.name, does="compute", before=before, seconds=seconds, stream=("memory", 0),
            bytes=said.size("tensor_size", None, repeat), repeat=repeat,
        )  # fmt: skip
    return TraceStep(
        number=node.number, name=node.name, does="nothing", before=before, seconds=0.0, stream=("none", index),
        invalid=node.kind is NodeType.INVALID,
    )  # fmt: skip


def _matrix_flops(said: Attributes) -> float | None:
    """Operations of products, where the trace tells them apart."""
    if "matrix_ops" not in said.node.attributes:
        return None
    matrix, all_of_it = said.whole("matrix_ops"), said.whole("num_ops", 0)
    if matrix > all_of_it:
        raise said.error(f"matrix_ops is {matrix} of num_ops {all_of_it}", "products are a part of all operations")
    return float(matrix)


def _collective_kind(said: Attributes) -> str:
    code = said.whole("comm_type")
    known = {**COLLECTIVE_KINDS, **ROOTED, CollectiveCode.BARRIER: BARRIER}
    kind = known.get(CollectiveCode(code)) if code <= max(CollectiveCode) else None
    if kind is None:
        raise UnsupportedError(
            f"{named_node(said.trace, said.index)} is a collective of type {code}, which no network model here answers for",
            where=said.trace.where, fix="types are " + ", ".join(f"{c:d} ({c.name})" for c in known),
        )  # fmt: skip
    return kind


def seconds_of(node: Node) -> float | None:
    """The seconds that a node states, whatever its kind; None where it states none."""
    exact = node.attributes.get("duration_ns")
    if isinstance(exact, (int, float)):
        return exact * NANOSECOND
    return node.duration_us * MICROSECOND if node.duration_us else None
