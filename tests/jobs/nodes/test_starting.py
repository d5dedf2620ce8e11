"""A node before first kernels that are too short for a reader's own roofline; the step stays as long."""

from __future__ import annotations

import pytest

from meshcast.chakra.schema import NodeType
from meshcast.hardware import resolve
from meshcast.jobs.nodes.kernels_as_pieces import computing, waiting
from meshcast.jobs.nodes.pieces import Piece, RankBody
from meshcast.jobs.nodes.starting import LEAST_S, STEP_BEGINS, with_longer_start

DEVICE = resolve("h100-sxm").device
ENOUGH = int(LEAST_S * DEVICE.memory_bandwidth) + 1


def kernel(moved: int) -> Piece:
    return computing("kernel", 2e-6, 10, moved, {"inputs": (), "outputs": (), "op_type": "elementwise"})


def message(kind: NodeType) -> Piece:
    return Piece(label="message", kind=kind, seconds=5e-6, stream=1)


def test_a_short_first_kernel_waits_for_the_step_to_begin() -> None:
    body = RankBody()
    body.add(message(NodeType.SEND))
    first = body.add(kernel(100))
    body.add(message(NodeType.COLLECTIVE), (first,))
    body.add(kernel(7), (0,), (first,))
    made = with_longer_start(body, DEVICE)
    assert [piece.label for piece in made.pieces] == [STEP_BEGINS, "message", "kernel", "message", "kernel"]
    assert made.data == [(), (), (), (2,), (1,)]
    assert made.order == [(), (), (0,), (), (2,)]
    assert made.ends()[1:] == pytest.approx(body.ends())
    begins = made.pieces[0]
    assert begins.seconds == 0.0
    assert begins.attributes["op_type"] == "wait"  # readers of ours count no work for it
    assert begins.attributes["tensor_size"] / DEVICE.memory_bandwidth == pytest.approx(LEAST_S)  # type: ignore[operator]


def test_others_stay_as_they_are() -> None:
    long = RankBody()
    long.add(kernel(ENOUGH))
    assert with_longer_start(long, DEVICE) is long
    later = RankBody()
    later.add(kernel(1), (later.add(message(NodeType.RECEIVE)),))
    assert with_longer_start(later, DEVICE) is later
    host = RankBody()
    host.add(waiting("host", 1e-6, host=True))
    assert with_longer_start(host, DEVICE) is host
    assert not with_longer_start(RankBody(), DEVICE).pieces
