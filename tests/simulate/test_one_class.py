"""One rank's loops say, to the last bit, what the general way says of one class: with and without contention, with loops."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.lower import Kernel
from meshcast.simulate.block_times import Placed, _by_events, _in_order
from meshcast.simulate.contention import SpeedShares, Taken
from meshcast.simulate.issue_order import BlockPlan, plan
from meshcast.simulate.lengths import Length, OneRank
from meshcast.simulate.one_class import events_alone, streams_alone
from tests.simulate.schedules import OneLink, Takes, exchange, kernel, loop, schedule
from tests.simulate.test_channels import STEPS, Graph, build
from tests.simulate.test_contention import estimate

LOOP = loop(schedule([kernel([0], [1], 1)]), 3, [0], [60])
SECONDS = st.floats(min_value=0.0, max_value=7.0, allow_nan=False)


def _lengths(block: BlockPlan, seconds: list[float]) -> list[Length]:
    """Lengths of all kinds: without time, with a gap behind them, with a wait for others."""
    found = []
    for index, step in enumerate(block.steps):
        own = seconds[index % len(seconds)]
        gap = 0.125 if isinstance(step, Kernel) and step.collective is None and own else 0.0
        found.append(Length(own + gap, own, own / 3, 0.0 if isinstance(step, Kernel) else 0.25))
    return found


@settings(max_examples=60, deadline=None)
@given(graph=STEPS, seconds=st.lists(SECONDS, min_size=5, max_size=5), cores=st.sampled_from([0.0, 0.2, 0.5]))
def test_both_ways_agree_to_the_last_bit(graph: Graph, seconds: list[float], cores: float) -> None:
    body = build(graph)
    half = len(body.steps) // 2
    block = plan(schedule([*body.steps[:half], LOOP, *body.steps[half:]], body.inputs))
    if not block.concurrent:
        return
    lengths = _lengths(block, seconds)
    estimates = [
        estimate(length.last, length.last / 2) if isinstance(step, Kernel) and step.collective is None else None
        for step, length in zip(block.steps, lengths, strict=True)
    ]
    rates = SpeedShares(network=OneLink(lambda _: 1.0), contention=Takes(Taken(cores=cores, memory=cores)))
    for order in block.orders:
        rank = OneRank(lengths)
        assert Placed.of(order, streams_alone(block, order, lengths)) == _in_order(block, order, rank)[0]
        alone = Placed.of(order, events_alone(block, order, lengths, estimates, rates))
        assert alone == _by_events(block, order, rank, estimates, rates)[0]


def test_a_circle_is_no_schedule() -> None:
    block = plan(schedule([exchange([0], [1], 1), kernel([1], [2], 1)]))
    rates = SpeedShares(network=OneLink(lambda _: 1.0))
    turned = BlockPlan(
        steps=block.steps, bodies=block.bodies, before=((1,), (0,)), orders=block.orders, lanes=block.lanes,
        channels=block.channels, concurrent=True, copies=False, nominal=0.0,
    )  # fmt: skip
    with pytest.raises(AssertionError, match="cycle"):
        events_alone(turned, (0, 1), [Length(1.0, 1.0)] * 2, [None, None], rates)
