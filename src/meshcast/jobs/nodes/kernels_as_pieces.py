"""One kernel as nodes of a trace: what a compute kernel, a collective or a wait carries for its readers.

Sizes are bytes as ASTRA-sim counts them: of an all-reduce, a reduce-scatter and an all-to-all what a rank starts with, of an
all-gather its own shard; which is a collective's input in all of them. `num_ops` and `tensor_size` are never 0: readers divide
by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from meshcast.base import UnsupportedError, pairs_of
from meshcast.chakra import COLLECTIVE_CODES, COPYING_THREAD, HOST_BYTES, Attribute, NodeType
from meshcast.jobs.nodes.job_groups import JobGroups
from meshcast.jobs.nodes.pieces import RECEIVING, Piece
from meshcast.jobs.traced.kernels import declared, work_of
from meshcast.lower import Kernel
from meshcast.workload import Collective, Tensor

NANOSECONDS = 1e9


def timed(seconds: float, stream: int) -> dict[str, Attribute]:
    """Attributes of every node: it is the device's, how long it takes beyond microseconds, where it runs."""
    return {"is_cpu_op": False, "duration_ns": seconds * NANOSECONDS, "stream": stream}


def waiting(label: str, seconds: float, *, host: bool = False, more: Mapping[str, Attribute] | None = None) -> Piece:
    """A wait: takes its time where durations are replayed, and none where they are worked out from operations."""
    work: dict[str, Attribute] = {"num_ops": 1, "tensor_size": 1, "inputs": (), "outputs": ()}
    said = timed(seconds, 0) | work | {"is_cpu_op": host, "op_type": "wait"} | dict(more or {})
    return Piece(label=label, kind=NodeType.COMPUTE, seconds=seconds, attributes=said, host=host)


def host_copy(label: str, seconds: float, size: int, repeat: int) -> Piece:
    """`repeat` copies of `size` bytes between the device and its host's memory, all in `seconds`, beside what the device does.

    To readers it is the host's, as it takes neither the device's cores nor a link between devices.
    """
    said = timed(seconds, COPYING_THREAD) | {"num_ops": 1, "tensor_size": 1, "inputs": (), "outputs": ()}
    said |= {"is_cpu_op": True, "tid": COPYING_THREAD, "op_type": "copy", HOST_BYTES: size * repeat}
    said |= {"repeat": repeat} if repeat > 1 else {}
    return Piece(label=label, kind=NodeType.COMPUTE, seconds=seconds, stream=COPYING_THREAD, attributes=said, host=True)


def computing(label: str, seconds: float, flops: float, moved: int, more: Mapping[str, Attribute]) -> Piece:
    """A node that computes."""
    operations, size = declared(flops, moved)
    work: dict[str, Attribute] = {"num_ops": operations, "tensor_size": size}
    return Piece(label=label, kind=NodeType.COMPUTE, seconds=seconds, attributes=timed(seconds, 0) | work | dict(more))


def kernel_piece(kernel: Kernel, seconds: float, repeat: int, touches: Mapping[str, Attribute]) -> Piece:
    """A compute kernel, `repeat` launches of it in one node; `touches` is what it reads and writes (`touched`)."""
    more: dict[str, Attribute] = {"op_type": kernel.kind.value, "dtype": kernel.dtype}
    if kernel.matrix_flops:
        more["matrix_ops"] = round(kernel.matrix_flops * repeat)
    if repeat > 1:
        more["repeat"] = repeat
    return replace(computing(kernel.name, seconds, *work_of(kernel, repeat), more | dict(touches)), kernel=kernel)


def touched(kernel: Kernel, tensors: Sequence[Tensor], name: Callable[[int], str]) -> dict[str, Attribute]:
    """Names and bytes of what a kernel reads and writes, as ASTRA-sim's memory tracker takes them."""

    def listed(values: Sequence[int]) -> tuple[str, ...]:
        return tuple(text for value in values for text in (name(value), str(tensors[value].bytes)))

    return {"inputs": listed(kernel.reads), "outputs": listed(kernel.writes)}


def collective_pieces(
    label: str, collective: Collective, devices: int, seconds: float, stream: int, groups: JobGroups,
    more: Mapping[str, Attribute], repeat: int = 1,
) -> tuple[Piece, ...]:  # fmt: skip
    """A collective over groups of a program's devices: one node, or a send with its receive for a permutation.

    Where a permutation's pairs are not known (exchanges that a sharding implies) every group is a ring.

    Raises:
        UnsupportedError: Traces have no such collective.
    """
    said = timed(seconds, stream) | dict(more) | ({"repeat": repeat} if repeat > 1 else {})
    if collective.kind == "collective_permute":
        to, origin = (
            groups.permuted(*pairs_of(collective.pairs), devices)
            if collective.pairs
            else groups.neighbours(collective.group, devices)
        )
        size: dict[str, Attribute] = {"comm_size": collective.payload_bytes * repeat, "comm_tag": stream}
        return message_pieces(label, seconds, stream, said | size, to, origin)
    if collective.kind not in COLLECTIVE_CODES:
        raise UnsupportedError(
            f"Chakra has no {collective.kind}", where=label, fix="it has " + ", ".join(COLLECTIVE_CODES)
        )
    code = COLLECTIVE_CODES[collective.kind]
    said |= {"comm_type": int(code), "comm_size": max(1, collective.input_bytes * repeat)}
    number = groups.group(collective.group, devices)
    return (
        Piece(
            label=label, kind=NodeType.COLLECTIVE, seconds=seconds, stream=stream, attributes=said, rank_value=number
        ),
    )


def message_pieces(
    label: str, seconds: float, stream: int, said: Mapping[str, Attribute], to: int, origin: int
) -> tuple[Piece, Piece]:
    """A send, which takes the time of the message, and the receive of one like it, which ends when it is there."""
    send = Piece(
        label=f"{label} send", kind=NodeType.SEND, seconds=seconds, stream=stream, attributes=said, rank_value=to
    )
    receive = Piece(
        label=f"{label} receive", kind=NodeType.RECEIVE, seconds=0.0, stream=RECEIVING,
        attributes={**said, "duration_ns": 0.0}, rank_value=origin,
    )  # fmt: skip
    return send, receive
