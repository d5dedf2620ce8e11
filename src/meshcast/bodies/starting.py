"""A rank's first node made long enough for readers that work out its time themselves, in whole nanoseconds.

ASTRA-sim with `roofline-enabled` takes `floor(max(ops / peak-perf, bytes / local-mem-bw))` ns for a node. Its queue of events
begins at 0 ns and refuses an event at the time that it is at, so a first node of less than a nanosecond (some 3 KB on an H100)
ends the simulation; any later one may take none. Such kernels are joined with those behind them, as many as it takes: work,
bytes and seconds are added up, and the step is as long as it was, since nothing but computing waits for those in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.bodies.job import RankClass
from meshcast.bodies.pieces import Body, Piece, Waits
from meshcast.chakra.nodes import Attribute
from meshcast.chakra.schema import NodeType
from meshcast.hardware import Device

LEAST_S = (
    10e-9  # by the roofline of the trace's own device: ten times what is needed, as readers choose rates of their own
)
SUMS = ("duration_ns", "num_ops", "tensor_size", "matrix_ops")


def with_longer_starts(classes: Sequence[RankClass], device: Device) -> tuple[RankClass, ...]:
    """Ranks whose first nodes are long enough where that can be."""
    return tuple(replace(each, body=with_longer_start(each.body, device)) for each in classes)


def with_longer_start(body: Body, device: Device) -> Body:
    """The body with its first kernels joined; as it is where they are long enough, or where others wait in between."""
    joined = _joined(body, device)
    if len(joined) < 2:
        return body
    made, place = Body(), dict[int, int]()
    for index, piece in enumerate(body.pieces):
        if index in joined[1:]:
            place[index] = place[joined[0]]
            continue
        data, order = ({place[before] for before in waits[index]} for waits in (body.data, body.order))
        one = _sum([body.pieces[each] for each in joined]) if index == joined[0] else piece
        place[index] = made.add(one, data, order)
    return made


def _joined(body: Body, device: Device) -> list[int]:
    """Which of the first kernels become one; none where that does not help."""
    sent = {before for i, piece in enumerate(body.pieces) if not _computes(piece) for before in _waits(body, i)}
    peak = max(device.matrix_flops.values())
    operations = moved = 0
    found: list[int] = []
    for index, piece in enumerate(body.pieces):
        if piece.kind is not NodeType.COMPUTE or piece.host:
            continue
        # What waits for more than the kernels before it does not begin with them.
        if not _computes(piece) or set(_waits(body, index)) - set(found) or sent.intersection(found):
            return []
        found.append(index)
        operations += _number(piece, "num_ops")
        moved += _number(piece, "tensor_size")
        if max(operations / peak, moved / device.memory_bandwidth) >= LEAST_S:
            return found
    return []


def _waits(body: Body, index: int) -> Waits:
    return (*body.data[index], *body.order[index])


def _computes(piece: Piece) -> bool:
    return piece.kind is NodeType.COMPUTE and not piece.host and piece.attributes.get("op_type") != "wait"


def _number(piece: Piece, name: str) -> int:
    value = piece.attributes.get(name, 0)
    assert isinstance(value, int)
    return value


def _sum(pieces: Sequence[Piece]) -> Piece:
    """One node for several: called and kept as the longest of them."""
    longest = max(pieces, key=lambda piece: piece.seconds)
    said: dict[str, Attribute] = {k: v for k, v in longest.attributes.items() if k not in (*SUMS, "repeat")}
    for name in SUMS:
        values = [value for piece in pieces if isinstance(value := piece.attributes.get(name), (int, float))]
        if values:
            said[name] = sum(values)
    if "inputs" in said:
        said |= _touched(pieces)
    label = f"{longest.label} and {len(pieces) - 1} small before it" if longest is pieces[-1] else longest.label
    return replace(longest, label=label, seconds=sum(piece.seconds for piece in pieces), attributes=said)


def _touched(pieces: Sequence[Piece]) -> dict[str, Attribute]:
    """Names and bytes of what all of them read from elsewhere, and of what they write."""
    read: dict[str, str] = {}
    written: dict[str, str] = {}
    for piece in pieces:
        for listed, known in (("inputs", read), ("outputs", written)):
            values = piece.attributes.get(listed, ())
            assert isinstance(values, tuple)
            texts = [str(value) for value in values]
            for name, size in zip(texts[::2], texts[1::2], strict=True):
                if listed == "outputs" or name not in written:
                    known.setdefault(name, size)
    return {
        listed: tuple(text for pair in known.items() for text in pair)
        for listed, known in (("inputs", read), ("outputs", written))
    }
