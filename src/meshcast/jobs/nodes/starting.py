"""A node before a rank's first kernel, where that is too short for readers that work out its time in whole nanoseconds.

ASTRA-sim with `roofline-enabled` takes `floor(max(ops / peak-perf, bytes / local-mem-bw))` ns for a node. Its queue of events
begins at 0 ns and refuses an event at the time that it is at, so a first node of less than a nanosecond (some 3 KB on an H100)
ends the simulation; any later one may take none. Such a kernel waits for the step to begin: no work and no time where
durations are replayed, and 10 ns by a roofline of the trace's own device, as readers choose rates of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.chakra import NodeType
from meshcast.hardware import Device
from meshcast.jobs.nodes.job import RankClass
from meshcast.jobs.nodes.kernels_as_pieces import waiting
from meshcast.jobs.nodes.pieces import Piece, RankBody

LEAST_S = 10e-9
STEP_BEGINS = "the step begins"


def with_longer_starts(classes: Sequence[RankClass], device: Device) -> tuple[RankClass, ...]:
    """Ranks whose first nodes are long enough."""
    return tuple(replace(each, body=with_longer_start(each.body, device)) for each in classes)


def with_longer_start(body: RankBody, device: Device) -> RankBody:
    """The body, with a node before its first kernel where that waits for nothing and is too short."""
    first = next((i for i, piece in enumerate(body.pieces) if piece.kind is NodeType.COMPUTE and not piece.host), None)
    if first is None or body.data[first] or body.order[first] or _seconds(body.pieces[first], device) >= LEAST_S:
        return body
    begins = waiting(STEP_BEGINS, 0.0)
    moved = round(LEAST_S * device.memory_bandwidth)
    made = RankBody()
    made.add(replace(begins, attributes={**begins.attributes, "tensor_size": moved}))
    made.append(body, ())
    made.order[1 + first] = (0,)
    return made


def _seconds(piece: Piece, device: Device) -> float:
    """What a node takes by a roofline of the device."""
    operations, moved = (piece.attributes.get(name, 0) for name in ("num_ops", "tensor_size"))
    assert isinstance(operations, int)
    assert isinstance(moved, int)
    return max(operations / max((device.matrix_flops or device.vector_flops).values()), moved / device.memory_bandwidth)
