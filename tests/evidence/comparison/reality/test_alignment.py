"""Alignments small enough to see, and the same by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.evidence.comparison.reality import alignment
from meshcast.evidence.comparison.reality.alignment import LEFT_OUT, aligned

durations = st.lists(st.sampled_from([1.0, 2.0, 3.0, 10.0, 50.0]), max_size=6)


def cost(predicted: list[float], measured: list[float], pairs: list[tuple[int, int]]) -> float:
    left = sum(predicted) + sum(measured) - sum(predicted[i] + measured[j] for i, j in pairs)
    return sum(abs(predicted[i] - measured[j]) for i, j in pairs) + LEFT_OUT * left


def cheapest(predicted: list[float], measured: list[float]) -> float:
    """By trying every pairing that keeps the order."""
    return min(
        cost(predicted, measured, list(zip(own, others, strict=True)))
        for count in range(min(len(predicted), len(measured)) + 1)
        for own in itertools.combinations(range(len(predicted)), count)
        for others in itertools.combinations(range(len(measured)), count)
    )


def pairs(predicted: list[float], measured: list[float]) -> list[tuple[int, int]]:
    return aligned(np.array(predicted, dtype=float), np.array(measured, dtype=float))


def test_what_is_missing_on_one_side_is_left_out() -> None:
    assert pairs([1.0, 5.0, 2.0], [1.1, 2.1]) == [(0, 0), (2, 1)]
    assert pairs([1.0, 2.0], [1.0, 40.0, 2.0]) == [(0, 0), (1, 2)]
    assert pairs([], [1.0]) == []


def test_durations_far_apart_are_no_pair() -> None:
    assert pairs([1.0], [8.0]) == [(0, 0)]
    assert pairs([1.0], [10.0]) == []


def test_places_in_the_program_decide_between_equal_durations() -> None:
    agrees = np.array([[False, True]])
    assert aligned(np.array([1.0]), np.array([1.0, 1.0]), lambda place: agrees[place]) == [(0, 1)]


@settings(deadline=None, max_examples=80)
@given(predicted=durations, measured=durations)
def test_no_pairing_is_cheaper(predicted: list[float], measured: list[float]) -> None:
    found = pairs(predicted, measured)
    assert [i for i, _ in found] == sorted({i for i, _ in found})
    assert [j for _, j in found] == sorted({j for _, j in found})
    assert cost(predicted, measured, found) == pytest.approx(cheapest(predicted, measured))


def test_halving_the_table_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    predicted, measured = generator.lognormal(size=90), generator.lognormal(size=80)
    whole = aligned(predicted, measured)
    monkeypatch.setattr(alignment, "WHOLE_TABLE", 100)
    halved = aligned(predicted, measured)
    own, others = list(predicted), list(measured)
    assert cost(own, others, halved) == pytest.approx(cost(own, others, whole))
