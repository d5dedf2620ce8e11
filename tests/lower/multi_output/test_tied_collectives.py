"""Fusion makes no collective wait for another that it does not wait for."""

from __future__ import annotations

from meshcast.lower.multi_output.tied_collectives import TiedCollectives
from tests.simulate.schedules import exchange, kernel

WEIGHT, GRADIENT, SUM, UPDATED, TURNED, EARLIER, EARLIER_SUM = range(1, 8)


def test_an_update_and_what_an_earlier_layer_needs_stay_apart() -> None:
    """Of a backward pass: a reduced gradient, the weight's update, and the turned weight behind which another gradient lies."""
    steps = [
        kernel([], [GRADIENT], 1),
        exchange([GRADIENT], [SUM], 1, kind="all_reduce"),
        kernel([WEIGHT, SUM], [UPDATED], 1),
        kernel([WEIGHT], [TURNED], 1),
        kernel([TURNED], [EARLIER], 1),
        exchange([EARLIER], [EARLIER_SUM], 1, kind="all_reduce"),
    ]
    tied = TiedCollectives(steps)
    assert tied.ties(2, 3)
    assert tied.ties(3, 2)
    assert not tied.ties(3, 4)
    assert not TiedCollectives(steps[:4]).ties(2, 3)  # nothing waits for the turned weight


def test_what_waits_for_the_same_may_be_one() -> None:
    steps = [
        exchange([1], [2], 1, kind="all_gather"),
        kernel([2], [3], 1),
        kernel([2], [4], 1),
        exchange([3], [5], 1, kind="all_reduce"),
    ]
    tied = TiedCollectives(steps)
    assert not tied.ties(1, 2)
    tied.merge(1, 2)
    assert not tied.ties(1, 0)
