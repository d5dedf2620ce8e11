"""The optimizer's state in the host's memory: what moving it adds to a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast.base.errors import UnsupportedError
from meshcast.hardware import resolve
from meshcast.jobs.pipeline.offload import streaming_seconds

H100 = resolve("h100-sxm").device
GB200 = resolve("gb200").device


def test_a_slow_link_hides_the_update() -> None:
    """50.4 GB over 0.8 x 63 GB/s are a second each way, at once; of ten pieces the first has nothing beside it."""
    assert streaming_seconds(504 * 10**8, 10, 0.2, H100) == pytest.approx(1.0 + 0.1 - 0.2)


def test_a_slow_update_hides_the_link() -> None:
    assert streaming_seconds(504 * 10**8, 10, 3.0, H100) == pytest.approx(0.1)


def test_nothing_to_move() -> None:
    assert streaming_seconds(0, 4, 1.0, H100) == 0.0


@given(st.integers(1, 10**12), st.integers(1, 200), st.floats(0.0, 10.0))
def test_a_faster_link_and_more_pieces_never_take_longer(state: int, pieces: int, update: float) -> None:
    seconds = streaming_seconds(state, pieces, update, H100)
    assert seconds >= 0
    assert streaming_seconds(state, pieces, update, GB200) <= seconds
    assert streaming_seconds(state, pieces + 1, update, H100) <= seconds


def test_a_link_that_nobody_knows() -> None:
    with pytest.raises(UnsupportedError, match="no rate of it is known"):
        streaming_seconds(1, 1, 1.0, replace(H100, host_bandwidth=None))
