"""First nodes that are too short for a reader's own roofline are joined, and the step stays as long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.bodies.kernels_as_pieces import computing, waiting
from meshcast.bodies.pieces import Body, Piece
from meshcast.bodies.starting import LEAST_S, with_longer_start
from meshcast.chakra.schema import NodeType
from meshcast.hardware import resolve

DEVICE = resolve("h100-sxm").device
ENOUGH = int(LEAST_S * DEVICE.memory_bandwidth) + 1


def kernel(name: str, moved: int, reads: str, writes: str) -> Piece:
    touched = {"inputs": (reads, "4"), "outputs": (writes, "8"), "op_type": "elementwise", "dtype": "f32"}
    return computing(name, 2e-6, 10, moved, touched)


def send() -> Piece:
    return Piece(label="send", kind=NodeType.SEND, seconds=5e-6, stream=1)


def chain(*sizes: int) -> Body:
    body, before = Body(), ()
    for number, size in enumerate(sizes):
        before = (body.add(kernel(f"k{number}", size, f"v{number}", f"v{number + 1}"), order=before),)
    return body


def test_small_kernels_become_one() -> None:
    body = chain(100, 200, ENOUGH, 7, 8)
    body.add(send(), (2,))
    made = with_longer_start(body, DEVICE)
    assert [piece.attributes.get("tensor_size") for piece in made.pieces] == [300 + ENOUGH, 7, 8, None]
    first = made.pieces[0]
    assert first.seconds == pytest.approx(6e-6)
    assert first.attributes["num_ops"] == 30
    assert first.attributes["duration_ns"] == pytest.approx(6000)
    assert first.attributes["inputs"] == ("v0", "4")  # v1 and v2 are made inside
    assert first.attributes["outputs"] == ("v1", "8", "v2", "8", "v3", "8")
    assert made.data == [(), (), (), (0,)]
    assert made.order == [(), (0,), (1,), ()]
    assert made.ends()[-2:] == pytest.approx(body.ends()[-2:])


def test_left_as_it_is() -> None:
    long = chain(ENOUGH, 1)
    assert with_longer_start(long, DEVICE) is long
    waited = chain(1, ENOUGH)
    waited.add(send(), (0,))  # it would leave later
    assert with_longer_start(waited, DEVICE) is waited
    never = chain(1, 1)
    assert with_longer_start(never, DEVICE) is never
    delayed = Body()
    delayed.add(waiting("host", 1e-6))
    assert with_longer_start(delayed, DEVICE) is delayed
    assert not with_longer_start(Body(), DEVICE).pieces


@given(st.lists(st.integers(1, ENOUGH), min_size=1, max_size=8), st.data())
def test_every_end_that_is_left_stays(sizes: list[int], data: st.DataObject) -> None:
    body = chain(*sizes)
    body.add(send(), (data.draw(st.integers(0, len(sizes) - 1)),))
    made = with_longer_start(body, DEVICE)
    assert made.ends()[1:] == pytest.approx(body.ends()[len(body) - len(made) + 1 :])
    assert sum(piece.seconds for piece in made.pieces) == pytest.approx(sum(piece.seconds for piece in body.pieces))


def test_what_runs_beside_them_stays_where_it_is() -> None:
    body = Body()
    first = body.add(kernel("k0", 100, "v0", "v1"))
    beside = body.add(send())
    second = body.add(kernel("k1", ENOUGH, "v1", "v2"), (first,))
    body.add(kernel("k2", 1, "v2", "v3"), (beside, second))
    made = with_longer_start(body, DEVICE)
    assert [piece.kind for piece in made.pieces] == [NodeType.COMPUTE, NodeType.SEND, NodeType.COMPUTE]
    assert made.data == [(), (), (0, 1)]
    assert made.ends()[-1] == pytest.approx(body.ends()[-1])
