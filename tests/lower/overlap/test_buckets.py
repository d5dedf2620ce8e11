"""Collectives joined into buckets: what is joined, where it stands, and that nothing waits in a circle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from meshcast.lower.kernel import Kernel
from meshcast.lower.overlap.buckets import with_buckets
from meshcast.lower.schedule.step_dependencies import dependencies
from tests.simulate.schedules import exchange, kernel, loop, run, schedule
from tests.simulate.test_channels import STEPS, Graph, build


def sizes(steps: object) -> list[int]:
    return [s.collective.input_bytes for s in steps if isinstance(s, Kernel) and s.collective]  # type: ignore[attr-defined]


def test_gradients_are_joined_up_to_the_limit() -> None:
    """Four gradients of 1 kB: two and two at 2 kB, three and one at 3, all at 4."""
    steps = [s for i in range(4) for s in (kernel([0], [1 + i], 1), exchange([1 + i], [11 + i], 1))]
    for limit, expected in ((999, [1000] * 4), (2000, [2000, 2000]), (3999, [3000, 1000]), (4000, [4000])):
        assert sizes(with_buckets(schedule(steps), limit).steps) == expected


def test_a_bucket_is_sent_when_its_last_member_is_ready() -> None:
    """Update 20 reads the first result alone, and comes after the bucket all the same."""
    steps = [
        kernel([0], [1], 1), exchange([1], [11], 1), kernel([11], [20], 1), kernel([0], [2], 1), exchange([2], [12], 1),
    ]  # fmt: skip
    joined = with_buckets(schedule(steps), 2000)
    assert [step.writes for step in joined.steps] == [(1,), (2,), (11, 12), (20,)]
    assert run(joined).duration == 1 + 1 + 2 + 1


def test_what_waits_for_a_bucket_is_not_in_it() -> None:
    chain = schedule([exchange([0], [1], 1), kernel([1], [2], 1), exchange([2], [3], 1)])
    assert with_buckets(chain, 10_000) == chain


def test_nor_what_waits_for_it_through_another_bucket() -> None:
    """a1 -> b2 and b1 -> a2: joined both, {a1, a2} and {b1, b2} would wait for each other."""
    steps = [
        exchange([0], [1], 1, over="a"), exchange([0], [2], 1, over="b"),
        exchange([1], [3], 1, over="b"), exchange([2], [4], 1, over="a"),
    ]  # fmt: skip
    joined = with_buckets(schedule(steps), 10_000)
    assert len(joined.steps) == 3
    assert run(joined).duration == 4  # b1 and b2 in one after a1, then a2


def test_kinds_groups_and_bodies_stay_apart() -> None:
    mixed = schedule(
        [exchange([0], [1], 1, over="a"), exchange([0], [2], 1, over="b"), exchange([0], [3], 1, kind="all_gather")]
    )
    assert with_buckets(mixed, 10_000) == mixed
    body = schedule([exchange([10], [11], 1), exchange([10], [12], 1), kernel([11, 12], [13], 1)], [10], [13])
    joined = with_buckets(schedule([exchange([0], [1], 1), loop(body, 3, [1], [2])]), 10_000)
    assert [sizes([s] if isinstance(s, Kernel) else s.body.steps) for s in joined.steps] == [[1000], [2000]]  # type: ignore[union-attr]


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_all_bytes_are_still_sent_in_an_order_that_data_allows(graph: Graph) -> None:
    body = build(graph)
    joined = with_buckets(body, 9000)
    assert sum(sizes(joined.steps)) == sum(sizes(body.steps))
    known = {0}
    for step in joined.steps:
        assert known.issuperset(step.reads)
        known.update(step.writes)
    before = dependencies(joined.steps)
    assert all(earlier < index for index, waits in enumerate(before) for earlier in waits)
    assert sum(n for _, n in joined.walk()) <= sum(n for _, n in body.walk())
    assert run(joined).communication_busy == pytest.approx(run(body).communication_busy)
