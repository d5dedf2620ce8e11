"""Simulations along a tape say what simulations say, to the last bit, in whatever order their events come."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.base import larger, smaller
from meshcast.estimate import EstimatedKernels
from meshcast.lower import Schedule
from meshcast.simulate import Simulator, rank_again
from meshcast.simulate.contention import Taken
from meshcast.simulate.retiming import replay
from meshcast.simulate.retiming.tape import Number, Tape, TooLongError
from meshcast.simulate.timeline import Breakdown
from tests.simulate.schedules import OneLink, Takes, exchange, kernel, loop, program, schedule
from tests.simulate.test_channels import STEPS, Graph, build
from tests.simulate.test_contention import estimate

TAKEN = st.sampled_from([None, Taken(cores=0.2, memory=0.3), Taken(cores=0.5, memory=0.9)])


def times(body: Schedule, draw: random.Random, spread: float) -> tuple[EstimatedKernels, OneLink]:
    """Times of all kernels, drawn by lot, near each other where the spread is small."""

    def near(seconds: float) -> float:
        return seconds * (1 + spread * draw.random())

    by_key = {}
    for each, _ in body.walk():
        if each.collective is None:
            by_key[each.cost_key] = replace(
                estimate(near(each.read_bytes / 1000), near(each.read_bytes / 1500), near(0.1)), energy=near(2.0)
            )
    network = near(1.0)
    return EstimatedKernels(by_key=by_key, gap=near(0.125)), OneLink(
        lambda each: each.collective.payload_bytes / 1000 / network if each.collective is not None else 0.0
    )


@settings(max_examples=40, deadline=None)
@given(graph=STEPS, taken=TAKEN, seed=st.integers(0, 10**6), spread=st.sampled_from([0.01, 0.3, 3.0]))
def test_both_ways_agree_to_the_last_bit(graph: Graph, taken: Taken | None, seed: int, spread: float) -> None:
    body, draw = build(graph), random.Random(seed)
    simulator = Simulator(program(body), None, Takes(taken) if taken is not None else None)
    for _ in range(14):
        kernels, network = times(body, draw, spread)
        plain, again = simulator.with_times(kernels, network), rank_again(simulator, kernels, network)
        assert again.length(simulator.plan) == plain.length(simulator.plan)
        assert again.executed(simulator.plan).kernels == plain.executed(simulator.plan).kernels
        found, expected = (simulator.timeline(rank, spans=False, paths=False) for rank in (again, plain))
        assert found == expected
        assert all(isinstance(each, float) for each in (found.duration, found.energy, found.breakdown.idle))
        assert simulator.timeline(again) == simulator.timeline(plain), "with its spans"


def test_neighbours_go_the_way_that_was_written_down() -> None:
    """Steps whose events come in the order of the fourth are not simulated; one in another order is, with its own answer."""
    inner = schedule([exchange([40], [41], 2), kernel([40], [42], 3), kernel([41, 42], [43], 1)], [40], [43])
    body = schedule([kernel([0], [1], 1), loop(inner, 3, [1], [2]), exchange([2], [3], 4), kernel([2], [4], 6)])
    simulator, draw = Simulator(program(body), None, Takes(Taken(cores=0.2, memory=0.0))), random.Random(1)
    ways = []
    for number in range(replay.FIRST + 6):
        rank = rank_again(simulator, *times(body, draw, 0.01))
        rank.length(simulator.plan)
        assert isinstance(rank, replay.RankAgain)
        ways.append(rank._way is not None)
        assert ways[-1] == (number > replay.FIRST)
    kernels, _ = times(body, draw, 0.01)
    slow = OneLink(lambda each: 20.0)
    other = rank_again(simulator, kernels, slow)
    assert other.length(simulator.plan) == simulator.with_times(kernels, slow).length(simulator.plan)
    assert isinstance(other, replay.RankAgain)
    assert other._way is None


def test_a_tape_does_again_what_it_saw() -> None:
    tape = Tape()
    first, second = tape.argument("a", 3.0), tape.argument("b", 2.0)
    assert first > second
    more = 2 * first + second / 4 - 1
    again = tape.function(("a", "b"), (Breakdown(compute=more, memory=larger(second, 1.0)), smaller(4.0, first), 7))  # type: ignore[arg-type]
    assert again(3.0, 2.0) == (Breakdown(compute=5.5, memory=2.0), 3.0, 7)
    assert again(5.0, 0.5) == (Breakdown(compute=9.125, memory=1.0), 4.0, 7)
    assert again(2.0, 2.0) is None, "the comparison comes out otherwise"


def test_numbers_are_no_keys_and_floats_are_chosen_from_as_they_are() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tape().argument("a", 1.0))
    assert (larger(1.0, 2.0), smaller(1.0, 2.0)) == (2.0, 1.0)
    assert not isinstance(larger(1.0, 2.0), Number)


def test_a_program_that_is_too_long_is_simulated_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcast.simulate.retiming.tape.MOST_LINES", 2)
    tape = Tape()
    with pytest.raises(TooLongError):
        _ = tape.argument("a", 1.0) + tape.argument("b", 2.0) + 3.0
    body = schedule([kernel([0], [1], 1), kernel([1], [2], 2)])
    simulator, draw = Simulator(program(body)), random.Random(2)
    for _ in range(12):
        found = times(body, draw, 0.1)
        rank = rank_again(simulator, *found)
        assert rank.length(simulator.plan) == simulator.with_times(*found).length(simulator.plan)
        assert isinstance(rank, replay.RankAgain)
        assert rank._way is None
